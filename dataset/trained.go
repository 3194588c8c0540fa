package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/chat"
)

// TemplateReport identifies the chat template that renders conversations.
type TemplateReport struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"` // SHA256 is the hash of the template's source.
	// Tools names the template of conversations with tools, if it is a different one.
	Tools string   `json:"tools_name,omitempty"`
	Ends  []string `json:"end_of_turn,omitempty"` // Ends are the tokens that end a turn, at which generation stops.
}

func (t TemplateReport) String() string {
	s := fmt.Sprintf("%s (sha256 %.12s)", t.Name, t.SHA256)
	if t.Tools != "" {
		s += "; with tools " + t.Tools
	}
	return s
}

// describeChat records the template of conversations and what of them is trained.
func (r *Report) describeChat(c *chat.Chat, cfg Config, tok Tokenizer) {
	plain, tools := c.Used()
	sum := sha256.Sum256([]byte(plain.Source))
	r.Template = TemplateReport{Name: plain.Name, SHA256: hex.EncodeToString(sum[:])}
	if tools != plain {
		r.Template.Tools = tools.Name
	}
	end := c.EndOfTurn(&chat.Conversation{})
	for _, id := range end.IDs {
		name, _ := tok.Token(id)
		r.Template.Ends = append(r.Template.Ends, name)
	}
	if end.Text != "" && !slices.Contains(r.Template.Ends, end.Text) {
		r.Template.Ends = append(r.Template.Ends, end.Text)
	}
	if r.Trained = Formats[r.Format].Trains; r.Trained == "" {
		r.Trained = cfg.trainedOfConversations(end.Text, r.Template.Ends, r.Format == "chat_completion")
	}
}

// trainedOfConversations returns the sentence about what is trained: of whole conversations, or only of their
// completions.
func (c Config) trainedOfConversations(end string, ends []string, completion bool) string {
	if c.TrainOn == chat.TrainAll {
		return "every token, what the template writes too"
	}
	who := strings.Join(c.RolesToTrain, " and ")
	s := "every message of the " + who
	if c.TrainOn == chat.TrainLast {
		s = "the last message of the " + who
	}
	if completion {
		s += " in the completion"
	}
	switch {
	case end != "":
		s += ", up to and with " + end + ", which ends its turn"
	case len(ends) > 0:
		s += ", up to and with the token that begins the next turn (" + strings.Join(ends, ", ") + ")"
	}
	if completion {
		s += ", and what the template writes behind the last message"
	}
	var without []string
	if !c.TrainReasoning {
		without = append(without, "its reasoning")
	}
	if !c.TrainToolCalls {
		without = append(without, "its tool calls")
	}
	if without != nil {
		s += ", without " + strings.Join(without, " and ")
	}
	return s + "; all else is context"
}

// trainedOf returns the sentence about what is trained for formats without conversations.
func (c Config) trainedOf(format string, eos string) string {
	switch f := Formats[format]; {
	case f.Chat || format == "":
		return ""
	case f.Trains != "":
		return f.Trains
	case c.TrainOnPrompt:
		return "prompt and answer, and " + eos + " behind it"
	}
	return "the answer and " + eos + " behind it; the prompt is context"
}

// describe records what is trained of each source's rows. It is called after the rows were read.
func (r *Report) describe(cfg Config, tok Tokenizer) error {
	for _, p := range r.Parts {
		if err := p.describe(cfg, tok); err != nil {
			return err
		}
		r.AsChat = r.AsChat || p.AsChat
	}
	if r.Val != nil {
		if err := r.Val.describe(cfg, tok); err != nil {
			return err
		}
	}
	if r.Parts == nil {
		if err := r.noteAsChat(cfg); err != nil {
			return err
		}
	}
	switch {
	case r.Parts != nil:
		return nil
	case r.Chat.Conversations == 0:
		id, _ := tok.EOS()
		eos, _ := tok.Token(id)
		r.Trained = cfg.trainedOf(r.Format, eos)
		return nil
	}
	c, err := cfg.chat.open()
	if err != nil {
		return err
	}
	r.describeChat(c, cfg, tok)
	return nil
}

// conversations reports whether rows of the report are conversations.
func (r *Report) conversations() bool {
	return r.Chat.Conversations > 0 || r.Val != nil && r.Val.conversations()
}

// Chat returns the chat template of the set's conversations; nil if it has none.
func (s *Set) Chat() (*chat.Chat, error) {
	if s.chat == nil {
		return nil, nil
	}
	return s.chat.open()
}

// BatchReport describes how full the batches of an epoch are.
type BatchReport struct {
	Count   int   `json:"count"`   // Count is the number of batches of an epoch.
	Budgets []int `json:"budgets"` // Budgets are the token budgets of batches, ascending.
	Packing bool  `json:"packing"`
	Padded  bool  `json:"padded"`
	// Efficiency is the share of computed tokens that belong to rows, in the first epoch.
	Efficiency float64 `json:"efficiency"`
	// Sequence is the number of tokens of a packed sequence, if it is less than max_length because of few rows; else 0.
	Sequence int `json:"sequence_length,omitempty"`
}

func (b BatchReport) String() string {
	sizes := make([]string, len(b.Budgets))
	for i, n := range b.Budgets {
		sizes[i] = fmt.Sprint(n)
	}
	how := "rows lie end to end"
	switch {
	case b.Packing:
		how = "rows are packed"
		if b.Sequence > 0 {
			how += fmt.Sprintf(" into sequences of %d tokens, as there are too few to fill max_length", b.Sequence)
		}
	case b.Padded:
		how = "rows are padded"
	}
	return fmt.Sprintf("%d per epoch, of %s tokens; %s, %.1f%% padding", b.Count, strings.Join(sizes, " or "), how,
		100*(1-b.Efficiency))
}

// Report returns how full the loader's batches are.
func (l *Loader) Report() *BatchReport {
	r := &BatchReport{Count: l.Batches(0), Budgets: slices.Clone(l.budgets), Packing: l.opt.Packing,
		Padded:     l.opt.Padded,
		Efficiency: l.Efficiency(0)}
	if l.opt.Asked > 0 {
		r.Sequence = l.opt.T
	}
	return r
}
