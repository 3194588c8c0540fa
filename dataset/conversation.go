package dataset

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/text/chat"
)

// chatCounts holds what the report counts for one row of a conversation.
type chatCounts struct {
	ends   []int // token offsets at which the trained turns end
	turns  int   // trained turns that are kept
	across int   // tokens that straddle a boundary of the loss mask
	plain  int   // special tokens in messages that are read as plain text
	kept   int   // special tokens in messages that are allowed
	other  int   // turns that begin differently from the template's generation prompt
	tools  int   // tools that the template does not render
	left   int   // texts of messages that the template does not render
	split  bool  // the conversation has several rows
	broken bool  // the row's only turn is truncated before its end

	system   string   // text of the system message, "" without one
	messages int      // messages of the row
	found    []string // special tokens in messages, without repetition
}

// cut returns the length to which a row longer than `most` is truncated: after its last complete turn, so that no
// answer is trained without its end. If not even the first turn fits, cut truncates in the middle of it.
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
func encodeConversation(ex Example, cfg Config) (encoded, error) {
	conv := ex.Conversation
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
		var images *RowImages
		if cfg.Images != nil {
			if images, err = expandRow(&row, cfg.Images, ex.Images); err != nil {
				return encoded{}, err
			}
		}
		e, err := finish(encoded{ids: row.IDs, labels: row.Labels, weights: row.Weights, weight: ex.Weight,
			images: images,
			chat: &chatCounts{
				ends: row.Ends, turns: len(
					row.Ends), across: row.Across, plain: row.Plain, kept: row.Kept, other: row.Other, left: row.Left,
				tools: row.Tools, split: row.Split,
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

// ChatReport is the part of a report about conversations.
type ChatReport struct {
	Conversations int `json:"count"`
	Turns         int `json:"trained_turns"` // Turns counts the trained turns that are kept.
	// Broken counts kept rows whose only turn is truncated at max_length, before the token that ends it.
	Broken int `json:"without_end"`
	// Split counts conversations rendered turn by turn, because the template renders earlier turns differently.
	Split int `json:"split,omitempty"`
	// SplitRows counts the rows of the split conversations.
	SplitRows int `json:"split_rows,omitempty"`
	// Across counts tokens that straddle a boundary of the loss mask; they are trained.
	Across int `json:"across_tokens"`
	// Plain counts special tokens inside messages that are read as plain text.
	Plain     int `json:"special_as_text"`
	PlainRows int `json:"special_as_text_rows"` // PlainRows counts the rows with such tokens.
	// Other counts turns that begin differently from the template's generation prompt.
	Other int `json:"other_prompts,omitempty"`
	// Left counts texts of messages that the template does not render.
	Left int `json:"unwritten,omitempty"`
	// Tools counts tools that the template does not render.
	Tools int `json:"unwritten_tools,omitempty"`
	// Toolless counts the conversations with such tools.
	Toolless int `json:"unwritten_tools_conversations,omitempty"`
	// Special counts special tokens inside messages that allow_special names.
	Special int `json:"special_allowed,omitempty"`
	// Found lists the special tokens found inside messages, in the order of the rows.
	Found []Found `json:"special_found,omitempty"`
	// SystemPrompts tells whether all conversations begin with the same system message or with none ("same"), or
	// whether they differ ("several"). "" = unknown: no conversation was read, or an older program wrote the report.
	SystemPrompts string `json:"system_prompts,omitempty"`
	// System is the text of the system message that every conversation begins with; "" if they have none or differ.
	System string `json:"system,omitempty"`
}

// Values of ChatReport.SystemPrompts.
const (
	sameSystem    = "same"
	severalSystem = "several"
)

// maxSystem bounds the system message that a report keeps, in bytes. Conversations with longer messages count as
// differing.
const maxSystem = 64 << 10

// system records the system message of one conversation.
func (c *ChatReport) system(text string) {
	if c.SystemPrompts == severalSystem || len(text) > maxSystem || c.SystemPrompts == sameSystem && c.System != text {
		c.SystemPrompts, c.System = severalSystem, ""
		return
	}
	if c.SystemPrompts == "" {
		c.SystemPrompts, c.System = sameSystem, text
	}
}

// Found is a special token that occurs inside messages.
type Found struct {
	Token string `json:"token"`
	Rows  int    `json:"rows"`
}

// shownTokens is how many kinds of special tokens are counted separately.
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

// add adds the counts of another file.
func (c *ChatReport) add(o ChatReport) {
	for _, n := range []struct {
		to *int
		of int
	}{
		{&c.Conversations, o.Conversations}, {&c.Turns, o.Turns}, {&c.Broken, o.Broken}, {&c.Split, o.Split},
		{&c.SplitRows, o.SplitRows}, {&c.Across, o.Across},
		{&c.Plain, o.Plain}, {&c.PlainRows, o.PlainRows}, {&c.Other, o.Other}, {&c.Left, o.Left}, {&c.Tools, o.Tools},
		{&c.Toolless, o.Toolless}, {&c.Special, o.Special},
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
	case c.Conversations == o.Conversations: // c had none before: these are its first conversations
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

// validateChat checks the keys about conversations.
func (c Config) validateChat() []error {
	var problems []error
	if len(c.RolesToTrain) == 0 {
		problems = append(problems, fmt.Errorf("dataset.roles_to_train is empty: name a role, such as assistant"))
	}
	return problems
}

// chatKeys lists the keys about conversations that are set.
func (c Config) chatKeys() []string {
	d := Default()
	var keys []string
	for _, k := range []struct {
		key string
		set bool
	}{
		{"system", c.System != d.System}, {"chat_template", c.ChatTemplate != d.ChatTemplate},
		{"train_on", c.TrainOn != d.TrainOn},
		{"roles_to_train", !slices.Equal(c.RolesToTrain, d.RolesToTrain)},
		{"train_reasoning", c.TrainReasoning != d.TrainReasoning},
		{"train_tool_calls", c.TrainToolCalls != d.TrainToolCalls}, {"split_turns", c.SplitTurns != d.SplitTurns},
		{"allow_special", len(c.AllowSpecial) > 0},
	} {
		if k.set {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// chatOnce finds the chat templates of a load. It compiles the needed template when the first conversation is read.
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
			return nil, errors.New(
				"the tokenizer does not tell where tokens lie in a text, so conversations cannot be masked")
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

// print returns the templates' text for the key of the token cache. Errors are reported when the template is used.
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
