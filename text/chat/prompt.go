package chat

import (
	"slices"

	"github.com/tierlora/tierlora/text/tokenizer"
)

// Prompted is a conversation up to where the model begins to write.
type Prompted struct {
	Text  string
	IDs   []int32
	Plain int // special tokens in texts of messages that were read as text
}

// Prompted renders a conversation with the template's generation prompt and tokenises it as Rows does: special tokens
// in texts of messages are read as the text they are, but for those that Options.Allow names, and none is added in front.
func (c *Chat) Prompted(conv *Conversation) (_ Prompted, err error) {
	defer tokenizer.Caught(&err)
	t := c.template(conv)
	conv = c.adapt(t, conv)
	if err := c.checkOutside(conv); err != nil {
		return Prompted{}, err
	}
	text, err := t.Text(conv, true)
	if err != nil {
		return Prompted{}, err
	}
	texts, _ := c.key(t, conv, make([]bool, len(conv.Messages)))
	var plain [][2]int
	if c.checkTexts(conv, texts) != nil {
		var ok bool
		if plain, ok = c.placeTexts(t, conv, texts, text); !ok {
			return Prompted{}, c.checkTexts(conv, texts)
		}
	}
	found := c.tok.Locate(text, tokenizer.LocateOptions{Plain: plain, Allow: c.allow})
	return Prompted{text, found.IDs, found.Plain}, nil
}

// placeTexts finds where the texts of messages lie in a rendering with the generation prompt.
func (c *Chat) placeTexts(t *Template, conv *Conversation, texts []text, rendered string) ([][2]int, bool) {
	if len(texts) > maxTexts || slices.ContainsFunc(texts, func(t text) bool { return hasMarks(t.s) }) {
		return nil, false
	}
	out, err := t.render(conv, marks(conv, marked), true)
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

// Used says which templates a Chat renders with, for conversations without and with tools.
func (c *Chat) Used() (plain, tools Named) {
	return Named{c.plain.Name, c.plain.source}, Named{c.tools.Name, c.tools.source}
}
