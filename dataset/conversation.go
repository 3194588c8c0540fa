package dataset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tierlora/tierlora/dataset/chat"
)

// chatCounts is what the report says of one row of a conversation.
type chatCounts struct {
	ends   []int // tokens up to the end of each trained turn
	turns  int   // of ends, kept
	across int   // tokens across a mask's border
	plain  int   // special tokens in messages that were read as text
	kept   int   // special tokens in messages that are allowed
	other  int   // turns that begin otherwise than the template's prompt for them
	left   int   // texts of messages that the template does not write
	split  bool  // the conversation has several rows
	broken bool  // its only turn is cut before its end
}

// cut is where a row is cut that is longer than most: behind its last whole turn, so that no answer without its end is
// trained; in the middle of the first turn where not one fits.
func (c *chatCounts) cut(most int) int {
	keep := most
	for i, end := range c.ends {
		if end <= most {
			keep, c.turns = end, i+1
		}
	}
	if len(c.ends) > 0 && c.ends[0] > most {
		c.turns, c.broken = 0, true
	}
	return keep
}

// encodeConversation makes the rows of a conversation.
func encodeConversation(conv *chat.Conversation, cfg Config) (encoded, error) {
	c, err := cfg.chat.open()
	if err != nil {
		return encoded{}, err
	}
	rows, err := c.Rows(conv)
	var special *chat.ErrSpecial
	if errors.As(err, &special) {
		return encoded{drop: dropSpecial, chat: &chatCounts{}}, nil
	}
	if err != nil {
		return encoded{}, err
	}
	var all []encoded
	for _, row := range rows {
		e, err := finish(encoded{ids: row.IDs, labels: row.Labels, chat: &chatCounts{
			ends: row.Ends, turns: len(row.Ends), across: row.Across, plain: row.Plain, kept: row.Kept, other: row.Other, left: row.Left, split: row.Split,
		}}, cfg)
		if err != nil {
			return encoded{}, err
		}
		all = append(all, e)
	}
	first := all[0]
	first.more = all[1:]
	return first, nil
}

// ChatReport is the part of a report that is about conversations.
type ChatReport struct {
	Conversations int
	Turns         int // trained and kept
	Broken        int // kept rows whose only turn is cut at max_length before the token that ends it
	Split         int // conversations rendered turn by turn, because the template writes earlier turns otherwise
	SplitRows     int // their rows
	Across        int // tokens across the border of a mask; they are trained
	Plain         int // special tokens inside messages, read as plain text
	PlainRows     int
	Other         int // turns that begin otherwise than the template's prompt for them
	Left          int // texts of messages that the template does not write
	Special       int // special tokens inside messages that allow_special names
}

func (r *Report) countChat(b *booked) {
	if b.chat == nil {
		return
	}
	c := &r.Chat
	if !b.more {
		c.Conversations++
		if b.chat.split {
			c.Split++
		}
	}
	if b.chat.split {
		c.SplitRows++
	}
	c.Plain += b.chat.plain
	c.Special += b.chat.kept
	if b.chat.plain > 0 {
		c.PlainRows++
	}
	if b.drop == "" {
		c.Turns += b.chat.turns
		if b.chat.broken {
			c.Broken++
		}
		c.Across += b.chat.across
		c.Left += b.chat.left
		c.Other += b.chat.other
	}
}

func (c *ChatReport) add(o ChatReport) {
	*c = ChatReport{
		Conversations: c.Conversations + o.Conversations, Turns: c.Turns + o.Turns, Broken: c.Broken + o.Broken,
		Split: c.Split + o.Split, SplitRows: c.SplitRows + o.SplitRows, Across: c.Across + o.Across,
		Plain: c.Plain + o.Plain, PlainRows: c.PlainRows + o.PlainRows,
		Other: c.Other + o.Other, Left: c.Left + o.Left, Special: c.Special + o.Special,
	}
}

func (c *ChatReport) write(b *strings.Builder) {
	if c.Conversations == 0 {
		return
	}
	fmt.Fprintf(b, "\n  conversations: %d, turns trained %d", c.Conversations, c.Turns)
	if c.Broken > 0 {
		fmt.Fprintf(b, "\n  no end: %d rows are cut at max_length in the middle of their first turn, so its end is not trained (on_truncated: drop leaves them out)", c.Broken)
	}
	if c.Split > 0 {
		fmt.Fprintf(b, "\n  split: %d conversations became %d rows, because the template writes earlier turns otherwise", c.Split, c.SplitRows)
	}
	if c.Across > 0 {
		fmt.Fprintf(b, "\n  borders: %d tokens lie across the border of a trained turn and are trained", c.Across)
	}
	if c.Other > 0 {
		fmt.Fprintf(b, "\n  prompts: %d turns begin otherwise than the template's prompt for them, which opens a reasoning", c.Other)
	}
	if c.Left > 0 {
		fmt.Fprintf(b, "\n  left out: the template does not write %d texts of messages", c.Left)
	}
	if c.Plain > 0 {
		fmt.Fprintf(b, "\n  special tokens: %d inside the messages of %d rows, read as plain text", c.Plain, c.PlainRows)
	}
	if c.Special > 0 {
		fmt.Fprintf(b, "\n  special tokens: %d inside messages, allowed by allow_special", c.Special)
	}
}

// validateChat checks the keys of conversations.
func (c Config) validateChat() []error {
	var problems []error
	oneOf := func(key, value string, choices ...string) {
		if !slices.Contains(choices, value) {
			last := len(choices) - 1
			problems = append(problems, fmt.Errorf("dataset.%s is %q, want %s or %s%s", key, value,
				strings.Join(choices[:last], ", "), choices[last], didYouMean(value, choices)))
		}
	}
	oneOf("train_on", c.TrainOn, chat.TrainAssistant, chat.TrainLast, chat.TrainAll)
	oneOf("split_turns", c.SplitTurns, chat.SplitAuto, chat.SplitAlways, chat.SplitNever)
	if len(c.RolesToTrain) == 0 {
		problems = append(problems, fmt.Errorf("dataset.roles_to_train is empty: name a role, such as assistant"))
	}
	for _, role := range c.RolesToTrain {
		if !slices.Contains(chat.Roles(), role) {
			problems = append(problems, fmt.Errorf("dataset.roles_to_train: there is no role %q, want some of %s%s", role,
				strings.Join(chat.Roles(), ", "), didYouMean(role, chat.Roles())))
		}
	}
	return problems
}

// chatKeys lists the keys of conversations that are set.
func (c Config) chatKeys() []string {
	d := Default()
	var keys []string
	for _, k := range []struct {
		key string
		set bool
	}{
		{"chat_template", c.ChatTemplate != d.ChatTemplate}, {"train_on", c.TrainOn != d.TrainOn},
		{"roles_to_train", !slices.Equal(c.RolesToTrain, d.RolesToTrain)}, {"train_reasoning", c.TrainReasoning != d.TrainReasoning},
		{"train_tool_calls", c.TrainToolCalls != d.TrainToolCalls}, {"split_turns", c.SplitTurns != d.SplitTurns},
		{"allow_special", len(c.AllowSpecial) > 0},
	} {
		if k.set {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// chatOnce finds the templates of a load, and compiles the one that is needed when the first conversation comes.
type chatOnce struct {
	sources func() (*chat.Sources, error)
	open    func() (*chat.Chat, error)
	name    string
}

func newChatOnce(c Config, tok Tokenizer) *chatOnce {
	o := &chatOnce{name: c.ChatTemplate}
	o.sources = sync.OnceValues(func() (*chat.Sources, error) {
		if c.Chat == nil {
			return &chat.Sources{}, nil
		}
		return c.Chat()
	})
	o.open = sync.OnceValues(func() (*chat.Chat, error) {
		t, ok := tok.(chat.Tokenizer)
		if !ok {
			return nil, errors.New("the tokenizer does not tell where tokens lie in a text, so conversations cannot be masked")
		}
		sources, err := o.sources()
		if err != nil {
			return nil, fmt.Errorf("find the chat template: %w", err)
		}
		return chat.New(sources, c.ChatTemplate, t, chat.Options{
			TrainOn: c.TrainOn, Roles: c.RolesToTrain, Reasoning: c.TrainReasoning, ToolCalls: c.TrainToolCalls,
			Turns: c.SplitTurns, Allow: c.AllowSpecial,
		})
	})
	return o
}

// print names the templates for the key of the token cache; what cannot be read is reported when it is used.
func (o *chatOnce) print() string {
	if o == nil {
		return ""
	}
	sources, err := o.sources()
	if err != nil {
		return err.Error()
	}
	return sources.Fingerprint(o.name)
}
