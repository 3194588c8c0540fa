package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/text/jinja"
)

// answerMark stands for the model's answer in the conversation that Continue renders.
const answerMark = "Qv7answer"

// Continue returns the tokens between an answer that the model wrote and its next one: what the template writes behind
// an assistant's text, the messages that follow it, and the generation prompt. They begin with the template's end of a
// turn, if it has one. raw holds the messages in Messages, and tools and variables of the conversation. The answer and
// what stands before it are not rendered again, so the tokens depend on the messages alone.
func (c *Chat) Continue(raw Raw) ([]int32, error) {
	conv := Dialogue("", "question", answerMark)
	list, err := listOf(raw.Key, raw.Messages)
	if err != nil {
		return nil, err
	}
	for i, item := range list {
		name := fmt.Sprintf("%s[%d]", raw.Key, i)
		d, ok := item.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf("%s is %s, want an object with role and content", name, typeOf(item))
		}
		m, err := message(d, false)
		if err != nil {
			return nil, fmt.Errorf("%s%w", name, err)
		}
		conv.Messages = append(conv.Messages, m)
	}
	if conv.Tools, err = readTools(raw.Tools, "tools"); err != nil {
		return nil, err
	}
	if len(raw.Vars) > 0 {
		if conv.Vars, err = Vars(raw.Vars); err != nil {
			return nil, err
		}
	}
	_, found, err := c.located(conv, true, func(text string) []int {
		if at := strings.Index(text, answerMark); at >= 0 {
			return []int{at + len(answerMark)}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("the chat template cannot write the messages behind an answer: %w", err)
	case len(found.Borders) == 0:
		return nil, errors.New("the chat template leaves out an answer that messages follow")
	case found.Borders[0].Across:
		return nil, errors.New("the chat template joins an answer and what follows it in one token")
	}
	return found.IDs[found.Borders[0].Token:], nil
}
