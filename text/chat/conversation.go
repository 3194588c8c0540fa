// Package chat turns conversations into tokens and loss masks with a model's own chat template. It finds the template
// as transformers does, renders the conversation, and proves for every trained turn where it lies in the text and that
// the token that ends it is trained.
//
//	row's JSON -> Conversation (read.go) -> text of the template (template.go) -> spans (spans.go, layout.go)
//	  -> ids, labels (encode.go)
package chat

import (
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/text/jinja"
)

// Conversation is a conversation as a row of a data set holds it.
type Conversation struct {
	Messages []Message
	Tools    jinja.Value // value of the template's variable tools; nil without tools
	// Images are the references of the conversation's images, in the order of their parts: paths or data: URIs.
	Images []string
	Vars   *jinja.Dict // further variables of the template, such as enable_thinking; nil without them

	key    string // the row's key of the messages; "" = messages
	before int    // number of messages that come from another field
	// asked is the number of messages, after the first `before`, that are the prompt of a completion; only the messages
	// after them are trained. 0 = the conversation has no such prompt. completionKey is the row's key of the
	// completion.
	asked         int
	completionKey string
	marks         int // images that the messages show
}

// name returns the name of message i in errors.
func (c *Conversation) name(i int) string {
	key := c.key
	switch {
	case i < c.before:
		return "system"
	case key == "":
		key = "messages"
	case c.asked > 0 && i-c.before >= c.asked:
		return fmt.Sprintf("%s[%d]", c.completionKey, i-c.before-c.asked)
	}
	return fmt.Sprintf("%s[%d]", key, i-c.before)
}

// Message is one turn of a conversation.
type Message struct {
	Role   string
	Fields *jinja.Dict // variables for the template, role and content included; read-only
	Train  *bool       // the row's own choice; nil: the options decide
	// Weight is the factor of the loss of the message's tokens, above 0 and at most MaxWeight. 0 = the row gives none,
	// which is one. A row's weight of 0 is a Train of false.
	Weight float64

	weightKey string // the row's name for Weight
}

// has reports whether a key of the message has a value other than null.
func (m Message) has(key string) bool {
	v, ok := m.Fields.Get(key)
	if !ok {
		return false
	}
	_, null := v.(jinja.None)
	return !null
}

// callNames returns the names of the functions that the message calls.
func (m Message) callNames() []string {
	v, _ := m.Fields.Get("tool_calls")
	list, _ := v.(*jinja.List)
	if list == nil {
		return nil
	}
	names := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		call, _ := item.(*jinja.Dict)
		if call == nil {
			continue
		}
		if f, _ := call.Get("function"); f != nil {
			if d, ok := f.(*jinja.Dict); ok {
				call = d
			}
		}
		name, _ := call.Get("name")
		s, _ := name.(jinja.Str)
		names = append(names, string(s))
	}
	return names
}

// reasoningKeys are the keys under which messages have their reasoning.
var reasoningKeys = []string{"reasoning_content", "reasoning", "thinking"}

// kind classifies a piece of a message's text.
type kind uint8

const (
	answer    kind = iota // the content proper
	reasoning             // reasoning: between <think> and </think>, or in a field of its own
	call                  // a tool call: between <tool_call> and </tool_call>
	tag                   // one of tags, which template and text may both write
	blank                 // only white space
)

// tags are marks inside contents that templates look for. Pieces of text between them are handled separately.
var tags = []struct {
	text string
	next kind // kind of the text after the tag
}{
	{"<think>", reasoning}, {"</think>", answer},
	{"<tool_call>", call}, {"</tool_call>", answer},
	{"<tool_response>", answer}, {"</tool_response>", answer},
}

// split divides a text at the tags and calls f for every piece in order.
func split(text string, in kind, f func(k kind, s string)) {
	if in == answer {
		if open, end := strings.Index(text, "<think>"), strings.Index(text, "</think>"); end >= 0 &&
			(open < 0 || open > end) {
			in = reasoning // the template's prompt contains the opening tag
		}
	}
	for text != "" {
		at, length, next := len(text), 0, in
		if strings.IndexByte(text, '<') >= 0 {
			for _, t := range tags {
				if i := strings.Index(text[:min(len(text), at+len(t.text))], t.text); i >= 0 && i < at {
					at, length, next = i, len(t.text), t.next
				}
			}
		}
		if at > 0 {
			if trimSpace(text[:at]) == "" {
				f(blank, text[:at])
			} else {
				f(in, text[:at])
			}
		}
		if length > 0 {
			f(tag, text[at:at+length])
		}
		text, in = text[at+length:], next
	}
}

// texts calls f for each text of a message that a template writes unchanged, and returns a copy of the fields in which
// f's results replace the texts. parts includes the texts in lists of content parts.
func (m Message) texts(f func(in kind, text string) string) *jinja.Dict {
	var out *jinja.Dict
	put := func(key string, v jinja.Value) {
		if out == nil {
			out = m.Fields.Copy()
		}
		out.Set(key, v)
	}
	for i := range m.Fields.Len() {
		k, v := m.Fields.At(i)
		key, _ := k.(jinja.Str)
		in, ok := textKey(string(key))
		if !ok {
			continue
		}
		switch v := v.(type) {
		case jinja.Str:
			put(string(key), jinja.Str(f(in, string(v))))
		case *jinja.List:
			items := make([]jinja.Value, len(v.Items))
			for n, item := range v.Items {
				items[n] = item
				part, _ := item.(*jinja.Dict)
				if part == nil {
					continue
				}
				if s, _ := part.Get("text"); s != nil {
					if s, ok := s.(jinja.Str); ok {
						part = part.Copy()
						part.Set("text", jinja.Str(f(in, string(s))))
						items[n] = part
					}
				}
			}
			put(string(key), jinja.NewList(items...))
		}
	}
	if out == nil {
		return m.Fields
	}
	return out
}

// textKey reports whether a field holds text, and the kind of that text.
func textKey(key string) (kind, bool) {
	switch key {
	case "content":
		return answer, true
	case "reasoning_content", "reasoning", "thinking":
		return reasoning, true
	}
	return 0, false
}

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool {
	switch {
	case r <= ' ':
		return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f
	case r < 0x2000:
		return r == 0x85 || r == 0xa0 || r == 0x1680
	}
	return r <= 0x200a || r == 0x2028 || r == 0x2029 || r == 0x202f || r == 0x205f || r == 0x3000
}

func trimSpace(s string) string { return strings.TrimFunc(s, isSpace) }

// trimRight removes the white space that a template writes after the end of a turn, which the model never writes.
func trimRight(s string) string { return strings.TrimRight(s, " \n") }
