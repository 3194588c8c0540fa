package chat

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/text/jinja"
)

// ErrSpecial means that a conversation must be left out, because a special token in it cannot be distinguished from the
// template's own.
type ErrSpecial struct{ Where, Token string }

func (e *ErrSpecial) Error() string {
	return fmt.Sprintf("%s holds the special token %s, which cannot be told from the template's own "+
		"(dataset.allow_special allows it)", e.Where, e.Token)
}

// checkOutside looks for special tokens that marks cannot track: in tools, calls and names.
func (c *Chat) checkOutside(conv *Conversation) error {
	if slices.Contains(c.o.Allow, "all") {
		return nil
	}
	check := func(where string, v jinja.Value) error {
		b := appendStrings(nil, v)
		if len(b) == 0 {
			return nil
		}
		for _, s := range c.specials(string(b)) {
			if !c.allow[s.ID] {
				name, _ := c.tok.Token(s.ID)
				return &ErrSpecial{where, name}
			}
		}
		return nil
	}
	if conv.Tools != nil {
		if err := c.toolsOnce(string(appendStrings(nil, conv.Tools)),
			func() error { return check("tools", conv.Tools) }); err != nil {
			return err
		}
	}
	for i, m := range conv.Messages {
		for n := range m.Fields.Len() {
			k, v := m.Fields.At(n)
			key, _ := k.(jinja.Str)
			if _, isText := textKey(string(key)); isText || key == "role" {
				continue
			}
			if err := check(conv.name(i)+"."+string(key), v); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTexts looks for special tokens in texts whose position in the rendering is unknown.
func (c *Chat) checkTexts(conv *Conversation, texts []text) error {
	if slices.Contains(c.o.Allow, "all") {
		return nil
	}
	for _, t := range texts {
		for _, s := range c.specials(t.s) {
			if !c.allow[s.ID] {
				name, _ := c.tok.Token(s.ID)
				return &ErrSpecial{conv.name(t.message), name}
			}
		}
	}
	return nil
}

// maxTools bounds how many checked lists of tools are remembered.
const maxTools = 1024

// toolsOnce checks each list of tools once, as most rows of a data set share a few lists.
func (c *Chat) toolsOnce(tools string, check func() error) error {
	key := sha256.Sum256([]byte(tools))
	c.mu.RLock()
	_, seen := c.clean[key]
	c.mu.RUnlock()
	if seen {
		return nil
	}
	if err := check(); err != nil {
		return err
	}
	c.mu.Lock()
	if len(c.clean) < maxTools {
		c.clean[key] = struct{}{}
	}
	c.mu.Unlock()
	return nil
}

// appendStrings appends the strings in a value.
func appendStrings(b []byte, v jinja.Value) []byte {
	switch v := v.(type) {
	case jinja.Str:
		return append(append(b, v...), '\n')
	case *jinja.List:
		for _, item := range v.Items {
			b = appendStrings(b, item)
		}
	case *jinja.Dict:
		for i := range v.Len() {
			k, e := v.At(i)
			b = appendStrings(appendStrings(b, k), e)
		}
	}
	return b
}
