package chat

import (
	"errors"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/jinja"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// traits are facts about a template, found by trying it.
type traits struct {
	unknown   bool      // it rejects all sample conversations
	end       string    // text that ends a turn of the assistant
	prompt    string    // text that the generation prompt adds; "" without one
	open      string    // text after the end of the last turn: the prompt of the next turn, requested or not
	next      [2]string // the special tokens with which a user's and a tool's message begin, if end is ""
	stops     []int32   // single tokens that end a turn
	textOnly  bool      // contents must be strings, not lists of parts
	partsOnly bool      // contents must be lists of parts
	callText  bool      // the arguments of a call must be a JSON string
	// forNull and forAbsent replace the content of a message with tool calls if its content is null or absent; nil = no
	// replacement.
	forNull, forAbsent jinja.Value
}

// probeLimits are more than conversations of three messages need.
var probeLimits = jinja.Limits{Steps: 1_000_000, Output: 16 << 20, Memory: 64 << 20}

// probe tries a template on sample conversations. Only a template that exceeds the limits is an error.
func (c *Chat) probe(full *Template) (*traits, error) {
	known := &traits{}
	t := *full
	t.limits = probeLimits
	if _, err := t.Text(&Conversation{Messages: []Message{{Role: "user", Fields: fields("user", jinja.Str("x"))}}},
		false); err != nil {
		if e := (*jinja.Error)(nil); errors.As(err, &e) && e.Kind == "LimitError" {
			return nil, err
		}
	}
	c.try(&t, known)
	return known, nil
}

// try finds how the template renders conversations between a user and an assistant.
func (c *Chat) try(t *Template, known *traits) {
	user, answer := "\uE000\uE000", "\uE001\uE001" // not letters, which a template might change
	system := false
	talk := func(content func(string) jinja.Value, more ...string) *Conversation {
		conv := &Conversation{}
		if system {
			conv.Messages = append(conv.Messages, Message{Role: "system", Fields: fields("system", content("x"))})
		}
		for i, s := range append([]string{user, answer}, more...) {
			role := []string{"user", "assistant"}[i%2]
			conv.Messages = append(conv.Messages, Message{Role: role, Fields: fields(role, content(s))})
		}
		return conv
	}
	writes := func(content func(string) jinja.Value) bool {
		text, err := t.Text(talk(content), false)
		return err == nil && strings.Contains(text, user) && strings.Contains(text, answer) &&
			!strings.Contains(text, "'"+user+"'")
	}
	asText := func(s string) jinja.Value { return jinja.Str(s) }
	content := asText
	texts, parts := writes(asText), writes(asParts)
	if !texts && !parts {
		system = true // some templates require a system message
		texts, parts = writes(asText), writes(asParts)
	}
	switch {
	case !texts && !parts:
		known.unknown = true
		return
	case !texts:
		known.partsOnly, content = true, asParts
	case !parts:
		known.textOnly = true
	}
	known.callText = c.probeCalls(t)
	known.forNull, known.forAbsent = c.probeNoContent(t, known)
	asked := talk(content)
	asked.Messages = asked.Messages[:len(asked.Messages)-1]
	unasked, err := t.Text(asked, false)
	if prompt, err2 := t.Text(asked, true); err == nil && err2 == nil && strings.HasPrefix(prompt, unasked) {
		known.prompt = prompt[len(unasked):]
	}

	text, _ := t.Text(talk(content), false)
	_, end, _ := strings.Cut(text, answer)
	known.end = trimRight(end)
	middle := ""
	if longer, err := t.Text(talk(content, user), false); err == nil {
		_, middle, _ = strings.Cut(longer, answer)
	}
	stop := func(s []tokenizer.Special) {
		if len(s) > 0 {
			known.stops = append(known.stops, s[len(s)-1].ID)
		}
	}
	if n := c.openPrompt(t, unasked, end, middle); n > 0 && strings.HasPrefix(text, unasked) {
		known.end, known.open = end[:n], end[n:]
		known.prompt = strings.TrimLeft(known.open, "\n")
		stop(c.specials(known.end))
		return
	}
	if trimSpace(known.end) == "" {
		known.end = ""
		first := func(n int, text string) {
			text = strings.TrimPrefix(text, end)
			if at := c.firstMark(text); at > 0 {
				known.next[n] = text[:at]
				stop(c.specials(text[:at]))
			}
		}
		first(0, middle)
		conv := talk(content)
		conv.Messages = append(conv.Messages, Message{Role: "tool", Fields: fields("tool", content(user))})
		if text, err := t.Text(conv, false); err == nil {
			_, after, _ := strings.Cut(text, answer)
			first(1, after)
		}
		return
	}
	stop(c.specials(known.end))
	// The text after a turn in the middle is the same as after the last turn, or its beginning (Phi-3.5 closes the last
	// turn once more).
	n := 0
	for _, s := range c.specials(known.end) {
		if strings.HasPrefix(middle, known.end[:s.End]) {
			n = s.End
		}
	}
	for i := range known.end { // for a tokenizer that does not know the mark: it ends with the line
		if known.end[i] == '\n' && i > n && strings.HasPrefix(middle, known.end[:i+1]) {
			n = i
		}
	}
	if n > 0 && n < len(known.end) {
		stop(c.specials(known.end[:n]))
		known.end = known.end[:n]
	}
}

// openPrompt returns where the prompt of another turn begins in the text after the last answer; 0 if the template
// writes none. unasked is the rendering without an answer, and middle is the text between an answer and the text of the
// next message. The end of the turn is what the last turn and other turns have in common, up to the token that opens
// messages.
func (c *Chat) openPrompt(t *Template, unasked, end, middle string) (n int) {
	var bos, opener jinja.Value
	if t.tokens != nil {
		bos, _ = t.tokens.Get("bos_token")
	}
	for _, s := range c.specials(unasked) {
		if opener = jinja.Str(unasked[s.Start:s.End]); opener != bos {
			break
		}
	}
	for _, s := range c.specials(end) {
		if jinja.Str(end[s.Start:s.End]) == opener || !strings.HasPrefix(middle, end[:s.End]) {
			break
		}
		n = s.End
	}
	if open := trimSpace(end[n:]); open == "" || !strings.HasSuffix(trimRight(unasked), open) {
		return 0
	}
	return n
}

func asParts(s string) jinja.Value {
	part := jinja.NewDict()
	part.Set("type", jinja.Str("text"))
	part.Set("text", jinja.Str(s))
	return jinja.NewList(part)
}

// probeCalls reports whether a template renders a call's arguments only if they are a JSON string.
func (c *Chat) probeCalls(t *Template) bool {
	try := func(arguments jinja.Value) bool {
		text, err := t.Text(callingTalk(jinja.Str(""), arguments), false)
		return err == nil && strings.Contains(text, "\uE002") && !strings.Contains(text, `'at'`) &&
			!strings.Contains(text, `\"at`)
	}
	return !try(callObject()) && try(callString)
}

// callString and callObject are the arguments of a sample call in both forms.
const callString = jinja.Str("{\"at\": \"\uE002\"}")

func callObject() *jinja.Dict {
	object := jinja.NewDict()
	object.Set("at", jinja.Str("\uE002"))
	return object
}

// callingTalk returns a conversation in which the assistant calls a tool, beside a content.
func callingTalk(content, arguments jinja.Value) *Conversation {
	function, call, schema, tool := jinja.NewDict(), jinja.NewDict(), jinja.NewDict(), jinja.NewDict()
	function.Set("name", jinja.Str("look"))
	function.Set("arguments", arguments)
	call.Set("id", jinja.Str("abcdefghi"))
	call.Set("type", jinja.Str("function"))
	call.Set("function", function)
	m := fields("assistant", content)
	m.Set("tool_calls", jinja.NewList(call))
	schema.Set("name", jinja.Str("look"))
	schema.Set("description", jinja.Str("x"))
	schema.Set("parameters", jinja.NewDict())
	tool.Set("type", jinja.Str("function"))
	tool.Set("function", schema)
	return &Conversation{
		Messages: []Message{{Role: "user", Fields: fields("user", jinja.Str("x"))}, {Role: "assistant", Fields: m}},
		Tools:    jinja.NewList(tool),
	}
}

// probeNoContent finds contents for messages with only tool calls, if the template fails at null or writes None, or
// fails if the content is absent: an empty string, or an empty text part. nil means that no replacement is better than
// the original.
func (c *Chat) probeNoContent(t *Template, known *traits) (forNull, forAbsent jinja.Value) {
	var arguments jinja.Value = callObject()
	if known.callText {
		arguments = callString
	}
	asText := func(s string) jinja.Value { return jinja.Str(s) }
	if known.partsOnly {
		asText = asParts
	}
	result := fields("tool", asText("x"))
	result.Set("tool_call_id", jinja.Str("abcdefghi"))
	result.Set("name", jinja.Str("look"))
	more := []Message{{Role: "tool", Fields: result}, {Role: "assistant", Fields: fields("assistant", asText("x"))},
		{Role: "user", Fields: fields("user", asText("x"))}}
	// One conversation ends with the call, the other continues.
	short := callingTalk(jinja.Str(""), arguments)
	short.Messages[0].Fields = fields("user", asText("x"))
	long := *short
	long.Messages = append(slices.Clone(short.Messages), more...)
	// better returns the first of the contents that is rendered without faults in the most conversations.
	better := func(contents ...jinja.Value) (best jinja.Value) {
		good := make([]int, len(contents))
		for _, talk := range []*Conversation{short, &long} {
			noise, least := make([]int, len(contents)), -1
			for i, content := range contents {
				talk.Messages[1].Fields = withContent(talk.Messages[1].Fields, content)
				text, err := t.Text(talk, false)
				if noise[i] = strings.Count(text, "None") + strings.Count(text, "null"); err != nil {
					noise[i] = -1
				} else if least < 0 || noise[i] < least {
					least = noise[i]
				}
			}
			for i, n := range noise {
				if n >= 0 && n == least {
					good[i]++
				}
			}
		}
		return contents[slices.Index(good, slices.Max(good))]
	}
	if forNull = better(jinja.None{}, jinja.Str(""), asParts("")); forNull == (jinja.None{}) {
		forNull = nil
	}
	return forNull, better(nil, jinja.None{}, jinja.Str(""), asParts(""))
}

// withContent returns a message's fields with another content; nil removes the content.
func withContent(f *jinja.Dict, content jinja.Value) *jinja.Dict {
	f = f.Copy()
	if content == nil {
		f.Delete("content")
	} else {
		f.Set("content", content)
	}
	return f
}
