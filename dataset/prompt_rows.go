package dataset

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/text/chat"
)

// prompts reads {prompt}: a text or a list of messages that a model is to answer. The other columns of a row are left
// to rewards.
var prompts = Format{
	Roles: []Role{
		{Name: "prompt", Keys: []string{"prompt", "question", "problem", "instruction", "query", "messages"}},
		{Name: "system", Keys: systemKeys, Optional: true},
		{Name: "tools", Keys: toolKeys, Optional: true},
		{Name: "chat_template_kwargs", Keys: []string{"chat_template_kwargs"}, Optional: true},
	},
	Asked:    true,
	Trains:   "answers that are sampled while the run trains",
	NoPrompt: "the prompt is context of all answers",
	Talks:    func(f Fields) bool { return f.messagesIn("prompt") != noMessages },
	Render: func(f Fields, _ Config) (Example, error) {
		text, err := f.plain("prompt")
		return Example{Segments: []Segment{{Text: text}}}, err
	},
	AsChat: func(f Fields, _ Config) (Example, error) {
		if f.messagesIn("prompt") == noMessages {
			return userTurn(f)
		}
		return conversation(f, "prompt", "", false)
	},
	Supervised: "set training.objective: grpo or rloo",
}

// FormatPrompts is the format of rows that a model is to answer, which runs that sample detect by default.
const FormatPrompts = "prompts"

// userTurn reads a prompt of text as a user's message.
func userTurn(f Fields) (Example, error) {
	text, err := f.plain("prompt")
	if err != nil {
		return Example{}, err
	}
	system, err := f.Text("system")
	return Example{Conversation: chat.Dialogue(system, text)}, err
}

// promptOf makes the tokens that the model is to continue: of a conversation what stands before its last answer, with
// what the template writes before an answer; of another row what stands before its trained part.
func promptOf(ex Example, tok Tokenizer, cfg Config, b *buffers) (encoded, error) {
	var ids []int32
	switch {
	case ex.Group != nil || ex.Rollout != nil:
		return encoded{}, fmt.Errorf("the row has several answers of its own, and answers are sampled for one prompt")
	case ex.Completions != nil:
		prompt, _, _, err := ex.Completions.tokens(tok, cfg)
		if err != nil {
			return encoded{}, err
		}
		ids = prompt
	case ex.Conversation != nil:
		conv := ex.Conversation
		if n := len(conv.Messages); n > 1 && conv.Messages[n-1].Role == "assistant" {
			conv = conv.Before(1)
		}
		by, err := cfg.chat.open()
		if err != nil {
			return encoded{}, err
		}
		written, err := by.Prompted(conv)
		if err != nil {
			return encoded{}, err
		}
		ids = written.IDs
	default:
		labels := ex.Labels
		if ids = ex.IDs; ex.Segments != nil {
			b.ids, b.labels = encodeSegments(b.ids[:0], b.labels[:0], ex, tok, false)
			ids, labels = b.ids, b.labels
		}
		if at := slices.IndexFunc(labels, func(l int32) bool { return l != Ignore }); at >= 0 {
			ids = ids[:at]
		}
	}
	if len(ids) == 0 {
		return encoded{drop: dropEmptyText}, nil
	}
	if len(ids) > cfg.MaxLength {
		return encoded{}, fmt.Errorf("the prompt has %d tokens, more than dataset.max_length %d: shorten it, or raise "+
			"the key", len(ids), cfg.MaxLength)
	}
	return encoded{ids: ids, labels: slices.Repeat([]int32{Ignore}, len(ids)), length: len(ids)}, nil
}

// answeredRows are rows as they may become when answers to them are sampled: each is a group of answers of the most
// tokens. Their sizes decide what a run is planned for, and their order which prompts a step takes.
type answeredRows struct {
	Rows
	each, most int // answers to a prompt, and tokens of the longest
}

// Answered returns rows that stand for prompts with each answers of most tokens.
func Answered(prompts Rows, each, most int) Rows { return answeredRows{prompts, each, most} }

// Length returns the number of tokens of a whole group.
func (a answeredRows) Length(i int) int { return a.each * (a.Rows.Length(i) + a.most) }

// Trained returns the number of tokens of all answers.
func (a answeredRows) Trained(int) int { return a.each * a.most }

// Borders returns where the answers after the first begin.
func (a answeredRows) Borders(i int) (borders []int32) {
	for k := 1; k < a.each; k++ {
		borders = append(borders, int32(k*(a.Rows.Length(i)+a.most)))
	}
	return borders
}

// Row returns a group of answers that consist of the prompt's first token.
func (a answeredRows) Row(i int) Row {
	prompt := a.Rows.Row(i)
	row := prompt
	row.IDs, row.Labels, row.Borders = nil, nil, a.Borders(i)
	for range a.each {
		row.IDs, row.Labels = append(row.IDs, prompt.IDs...), append(row.Labels, prompt.Labels...)
		for range a.most {
			row.IDs, row.Labels = append(row.IDs, prompt.IDs[0]), append(row.Labels, prompt.IDs[0])
		}
	}
	return row
}

// Prompt returns the row that answers are sampled for, from rows of Answered.
func Prompt(rows Rows, i int) Row {
	if s, ok := rows.(sharing); ok {
		rows = s.rows
	}
	return rows.(answeredRows).Rows.Row(i)
}
