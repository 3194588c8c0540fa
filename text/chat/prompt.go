package chat

import (
	"slices"

	"github.com/tierlora/tierlora/text/tokenizer"
)

// Prompted is a rendered conversation in tokens: up to the point where the model begins to write (Chat.Prompted), or
// whole (Chat.Whole).
type Prompted struct {
	Text  string
	IDs   []int32
	Plain int // special tokens in texts of messages that were read as text
}

// Prompted renders a conversation with the template's generation prompt and tokenises it as Rows does: special tokens
// in texts of messages are read as plain text, unless Options.Allow names them, and no token is added before the text.
func (c *Chat) Prompted(conv *Conversation) (Prompted, error) { return c.written(conv, true) }

// Whole renders a conversation without the template's generation prompt and tokenises it as Prompted does.
func (c *Chat) Whole(conv *Conversation) (Prompted, error) { return c.written(conv, false) }

// Before returns the conversation without its last n messages. Tools and variables stay.
func (c *Conversation) Before(n int) *Conversation {
	before := *c
	before.Messages = c.Messages[:max(len(c.Messages)-n, 0)]
	return &before
}

func (c *Chat) written(conv *Conversation, generationPrompt bool) (Prompted, error) {
	text, found, err := c.located(conv, generationPrompt, func(string) []int { return nil })
	return Prompted{text, found.IDs, found.Plain}, err
}

// located renders a conversation and tokenises it. borders names the bytes of the rendering whose places among the
// tokens are wanted.
func (c *Chat) located(conv *Conversation, generationPrompt bool, borders func(text string) []int) (
	text string, found tokenizer.Located, err error) {
	defer tokenizer.Caught(&err)
	t := c.template(conv)
	conv = c.adapt(t, conv)
	if err := c.checkOutside(conv); err != nil {
		return "", found, err
	}
	text, err = t.Text(conv, generationPrompt)
	if err != nil {
		return "", found, err
	}
	texts, _ := c.key(t, conv, make([]bool, len(conv.Messages)))
	var plain [][2]int
	if c.checkTexts(conv, texts) != nil {
		var ok bool
		if plain, ok = c.placeTexts(t, conv, texts, text, generationPrompt); !ok {
			return "", found, c.checkTexts(conv, texts)
		}
	}
	found = c.tok.Locate(text, tokenizer.LocateOptions{Plain: plain, Allow: c.allow, Borders: borders(text)})
	return text, found, nil
}

// placeTexts locates the texts of messages in a rendering, with or without the generation prompt.
func (c *Chat) placeTexts(t *Template, conv *Conversation, texts []text, rendered string, generationPrompt bool) (
	places [][2]int, ok bool) {
	if len(texts) > maxTexts || slices.ContainsFunc(texts, func(t text) bool { return hasMarks(t.s) }) {
		return nil, false
	}
	out, err := t.render(conv, marks(conv, marked), generationPrompt)
	if err != nil {
		return nil, false
	}
	l, ok := readLayout(out.Text, len(texts), false)
	if !ok {
		return nil, false
	}
	ends, ok := l.place(rendered, nil, nil)
	if !ok {
		return nil, false
	}
	return c.textRanges(&rowShape{layout: l}, ends), true
}

// Used returns the templates for conversations without and with tools.
func (c *Chat) Used() (plain, tools Named) {
	return Named{c.plain.Name, c.plain.source}, Named{c.tools.Name, c.tools.source}
}
