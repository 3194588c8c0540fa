package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/text/chat"
)

// question is a row, rendered by the task.
type question struct {
	where    string
	prompt   string
	expected string   // the right answer or choice
	choices  []string // nil = the model writes the answer
	gold     int
	images   []dataset.ImageFile
}

// separator stands between solved examples of a plain text, gap between a prompt and its choice or answer.
const (
	separator = "\n\n"
	gap       = " "
)

func (t *Task) dataConfig(path, split string) dataset.Config {
	c := dataset.Default()
	c.Sources = []dataset.Source{{Path: path, Split: split, Weight: 1}}
	return c
}

// read makes questions from at most the given number of rows; 0 = all.
func (t *Task) read(ctx context.Context, g *infer.Generator, c dataset.Config, most int) (all []question, err error) {
	err = g.EachRow(ctx, c, func(row dataset.Item) error {
		q, err := t.question(row)
		if err != nil {
			return err
		}
		if len(all) == maxQuestions {
			return fmt.Errorf("%s: the data has more than %d questions: set limit", row.Where(), maxQuestions)
		}
		if all = append(all, q); most > 0 && len(all) == most {
			return dataset.ErrRowsDone
		}
		return nil
	})
	return all, err
}

func (t *Task) question(row dataset.Item) (q question, err error) {
	q.where = row.Where()
	if t.Images != "" {
		if q.images, err = row.Images(t.Images); err != nil {
			return q, err
		}
	}
	if q.prompt, err = fill(t.Prompt, row); err != nil {
		return q, err
	}
	if Kinds[t.Kind].Score == nil {
		if q.choices, q.gold, err = t.choicesOf(row); err != nil {
			return q, err
		}
		q.expected = q.choices[q.gold]
		return q, nil
	}
	if q.expected, err = fill(t.Answer, row); err != nil {
		return q, err
	}
	if check := Kinds[t.Kind].Expect; check != nil {
		if err := check(t, q.expected); err != nil {
			return q, fmt.Errorf("%s: %w", q.where, err)
		}
	}
	return q, nil
}

// examples draws the solved examples before each question by the seed and the question's number. A question is never
// its own example.
type examples struct {
	pool []question
	own  bool // the pool is the questions
	n    int
	seed uint64
}

func (t *Task) examples(ctx context.Context, g *infer.Generator, questions []question) (examples, error) {
	e := examples{n: t.FewShot, seed: t.Seed, pool: questions, own: true}
	if e.n == 0 {
		return e, nil
	}
	if t.FewData != "" {
		pool, err := t.read(ctx, g, t.dataConfig(t.FewData, ""), 0)
		if err != nil {
			return e, fmt.Errorf("few_shot_data: %w", err)
		}
		e.pool, e.own = pool, false
	} else if t.Limit > 0 { // a smaller limit must ask the same questions with the same examples
		pool, err := t.read(ctx, g, t.dataConfig(t.Data, t.Split), 0)
		if err != nil {
			return e, err
		}
		e.pool = pool
	}
	have := len(e.pool)
	if e.own {
		have--
	}
	if have < e.n {
		return e, fmt.Errorf("few_shot: %d examples are asked for, the data has %d besides the question", e.n, have)
	}
	return e, nil
}

func (e examples) of(i int) (chosen []question) {
	if e.n == 0 {
		return nil
	}
	pcg := rand.New(rand.NewPCG(e.seed, uint64(i)))
	taken := map[int]bool{}
	if e.own {
		taken[i] = true
	}
	for len(chosen) < e.n {
		if k := pcg.IntN(len(e.pool)); !taken[k] {
			taken[k] = true
			chosen = append(chosen, e.pool[k])
		}
	}
	return chosen
}

// text returns a question after its examples.
func text(q question, shots []question) string {
	var b strings.Builder
	for _, s := range shots {
		b.WriteString(s.prompt + gapBefore(s.prompt, s.expected) + s.expected + separator)
	}
	b.WriteString(q.prompt)
	return b.String()
}

// gapBefore returns the space between a prompt and what follows, or "" if one of them has it.
func gapBefore(prompt, next string) string {
	if strings.HasSuffix(prompt, " ") || strings.HasSuffix(prompt, "\n") || strings.HasPrefix(next, " ") ||
		strings.HasPrefix(next, "\n") {
		return ""
	}
	return gap
}

// talk returns a question after its examples as a conversation in which each example is a turn.
func (t *Task) talk(q question, shots []question) (*chat.Conversation, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var all []message
	for _, s := range shots {
		all = append(all, message{"user", s.marked()}, message{"assistant", s.expected})
	}
	raw, err := json.Marshal(append(all, message{"user", q.marked()}))
	if err != nil {
		return nil, err
	}
	r := chat.Raw{Key: "messages", Messages: raw, System: t.System, WithImages: t.Images != ""}
	for i := range imagesOf(q, shots) {
		r.Images = append(r.Images, fmt.Sprint(i)) // the files follow in this order
	}
	return chat.Read(r)
}
