package dataset

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/text/chat"
)

// chatCounts is what the report says of one row of a conversation.
type chatCounts struct {
	ends   []int // tokens up to the end of each trained turn
	turns  int   // of ends, kept
	across int   // tokens across a mask's border
	plain  int   // special tokens in messages that were read as text
	kept   int   // special tokens in messages that are allowed
	other  int   // turns that begin otherwise than the template's prompt for them
	tools  int   // tools that the template does not write
	left   int   // texts of messages that the template does not write
	split  bool  // the conversation has several rows
	broken bool  // its only turn is cut before its end

	system   string   // text of the system message, "" without one
	messages int      // of the row
	found    []string // special tokens in messages, each once
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
			ends: row.Ends, turns: len(row.Ends), across: row.Across, plain: row.Plain, kept: row.Kept, other: row.Other, left: row.Left, tools: row.Tools, split: row.Split,
			messages: row.Messages, found: row.Found,
		}}, cfg)
		if err != nil {
			return encoded{}, err
		}
		all = append(all, e)
	}
	all[0].chat.system, _ = conv.System()
	first := all[0]
	first.more = all[1:]
	return first, nil
}

// ChatReport is the part of a report that is about conversations.
type ChatReport struct {
	Conversations int     `json:"count"`
	Turns         int     `json:"trained_turns"`                           // and kept
	Broken        int     `json:"without_end"`                             // kept rows whose only turn is cut at max_length before the token that ends it
	Split         int     `json:"split,omitempty"`                         // conversations rendered turn by turn, because the template writes earlier turns otherwise
	SplitRows     int     `json:"split_rows,omitempty"`                    // their rows
	Across        int     `json:"across_tokens"`                           // across the border of a mask; they are trained
	Plain         int     `json:"special_as_text"`                         // special tokens inside messages, read as plain text
	PlainRows     int     `json:"special_as_text_rows"`                    //
	Other         int     `json:"other_prompts,omitempty"`                 // turns that begin otherwise than the template's prompt for them
	Left          int     `json:"unwritten,omitempty"`                     // texts of messages that the template does not write
	Tools         int     `json:"unwritten_tools,omitempty"`               // tools that the template does not write
	Toolless      int     `json:"unwritten_tools_conversations,omitempty"` // that have such tools
	Special       int     `json:"special_allowed,omitempty"`               // special tokens inside messages that allow_special names
	Found         []Found `json:"special_found,omitempty"`                 // which they are, in the order of the rows
	// SystemPrompts tells whether all conversations begin with the same system message or with none ("same"), or differ
	// ("several"). "" = not known: no conversation was read, or an older program counted.
	SystemPrompts string `json:"system_prompts,omitempty"`
	// System is the text of the system message that every conversation begins with; "" where they have none or differ.
	System string `json:"system,omitempty"`
}

// Values of ChatReport.SystemPrompts.
const (
	sameSystem    = "same"
	severalSystem = "several"
)

// maxSystem bounds the system message that a report keeps in bytes; conversations with longer ones count as several.
const maxSystem = 64 << 10

// system counts one conversation's system message.
func (c *ChatReport) system(text string) {
	if c.SystemPrompts == severalSystem || len(text) > maxSystem || c.SystemPrompts == sameSystem && c.System != text {
		c.SystemPrompts, c.System = severalSystem, ""
		return
	}
	if c.SystemPrompts == "" {
		c.SystemPrompts, c.System = sameSystem, text
	}
}

// Found is a special token that stands inside messages.
type Found struct {
	Token string `json:"token"`
	Rows  int    `json:"rows"`
}

// shownTokens is how many kinds of special tokens are counted each by itself.
const shownTokens = 20

func (c *ChatReport) find(token string, rows int) {
	i := slices.IndexFunc(c.Found, func(f Found) bool { return f.Token == token })
	if i < 0 {
		if len(c.Found) == shownTokens {
			return
		}
		i, c.Found = len(c.Found), append(slices.Clip(c.Found), Found{Token: token})
	}
	c.Found[i].Rows += rows
}

// add sums up another file's numbers.
func (c *ChatReport) add(o ChatReport) {
	for _, n := range []struct {
		to *int
		of int
	}{
		{&c.Conversations, o.Conversations}, {&c.Turns, o.Turns}, {&c.Broken, o.Broken}, {&c.Split, o.Split}, {&c.SplitRows, o.SplitRows}, {&c.Across, o.Across},
		{&c.Plain, o.Plain}, {&c.PlainRows, o.PlainRows}, {&c.Other, o.Other}, {&c.Left, o.Left}, {&c.Tools, o.Tools}, {&c.Toolless, o.Toolless}, {&c.Special, o.Special},
	} {
		*n.to += n.of
	}
	for _, f := range o.Found {
		c.find(f.Token, f.Rows)
	}
	if o.Conversations == 0 {
		return
	}
	switch known := c.SystemPrompts != "" && o.SystemPrompts != ""; {
	case c.Conversations == o.Conversations: // the first
		c.SystemPrompts, c.System = o.SystemPrompts, o.System
	case !known:
		c.SystemPrompts, c.System = "", ""
	case o.SystemPrompts == severalSystem || c.SystemPrompts == severalSystem:
		c.SystemPrompts, c.System = severalSystem, ""
	default:
		c.system(o.System)
	}
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
	for _, token := range b.chat.found {
		c.find(token, 1)
	}
	if b.drop == "" {
		if !b.more {
			c.system(b.chat.system)
		}
		c.Turns += b.chat.turns
		if b.chat.broken {
			c.Broken++
		}
		c.Across += b.chat.across
		c.Left += b.chat.left
		if c.Tools += b.chat.tools; b.chat.tools > 0 {
			c.Toolless++
		}
		c.Other += b.chat.other
	}
}

// validateChat checks the keys of conversations.
func (c Config) validateChat() []error {
	var problems []error
	if len(c.RolesToTrain) == 0 {
		problems = append(problems, fmt.Errorf("dataset.roles_to_train is empty: name a role, such as assistant"))
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
		{"system", c.System != d.System}, {"chat_template", c.ChatTemplate != d.ChatTemplate}, {"train_on", c.TrainOn != d.TrainOn},
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
