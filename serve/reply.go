package serve

import (
	"context"
	"time"
)

// reply is the common part of every response.
type reply struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

func newReply(r *request) reply {
	out := reply{ID: "cmpl-" + randomText(24), Object: "text_completion", Created: time.Now().Unix(),
		Model: r.model.Name}
	if r.chat {
		out.ID, out.Object = "chat"+out.ID, "chat.completion"
	}
	return out
}

type chatReply struct {
	reply
	Choices []chatChoice `json:"choices"`
	Usage   usage        `json:"usage"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  chatMessage   `json:"message"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   string        `json:"finish_reason"`
}

type chatMessage struct {
	Role      string  `json:"role"`
	Content   *string `json:"content"`
	Refusal   *string `json:"refusal"`
	ToolCalls []call  `json:"tool_calls,omitempty"`
}

type textReply struct {
	reply
	Choices []textChoice `json:"choices"`
	Usage   usage        `json:"usage"`
}

type textChoice struct {
	Text     string        `json:"text"`
	Index    int           `json:"index"`
	Logprobs *textLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

// whole waits for a request's answers and returns them as one response.
func (l *Library) whole(ctx context.Context, a *answering) (any, error) {
	all, err := a.collect(ctx)
	if err != nil {
		return nil, err
	}
	if a.chat {
		out := chatReply{reply: newReply(a.request), Usage: a.usageOf()}
		for i := range all {
			out.Choices = append(out.Choices, l.chatChoice(a, i, &all[i]))
		}
		return out, nil
	}
	out := textReply{reply: newReply(a.request), Usage: a.usageOf()}
	for i := range all {
		w := &all[i]
		finish := a.finish(i, false)
		c := textChoice{Index: i, Text: w.text.String(), Finish: &finish}
		if a.echo {
			c.Text = a.at(i).echo + c.Text
		}
		if a.logprobs {
			c.Logprobs = l.textLogprobs(a, i, w.prompt, a.echo)
			for _, t := range w.tokens {
				c.Logprobs.add(l, t, a.top)
			}
		}
		out.Choices = append(out.Choices, c)
	}
	return out, nil
}

// textLogprobs starts the logprobs of answer i, with the prompt's tokens if the prompt is repeated.
func (l *Library) textLogprobs(a *answering, i int, prompt []Scored, echo bool) *textLogprobs {
	t := &textLogprobs{Tokens: []string{}, TokenLogprobs: []*float64{}, TopLogprobs: []map[string]float64{},
		TextOffset: []int{}}
	if echo {
		t.push(l.tokenText(a.at(i).IDs[0]), nil, nil)
		for _, s := range prompt {
			t.add(l, s, a.top)
		}
	}
	return t
}

func (l *Library) chatChoice(a *answering, i int, w *whole) chatChoice {
	reader := callReader{format: a.at(i).calls, held: a.at(i).lead}
	text := reader.push(w.text.String())
	rest, calls := reader.finish()
	text += rest
	c := chatChoice{Index: i, Message: chatMessage{Role: "assistant", Content: &text, ToolCalls: calls},
		Finish: a.finish(i, len(calls) > 0)}
	if text == "" && len(calls) > 0 {
		c.Message.Content = nil
	}
	if a.logprobs {
		c.Logprobs = l.chatLogprobs(w.tokens, a.top)
	}
	return c
}
