package serve

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strings"
)

// callFormat is the format in which a family of models writes tool calls.
type callFormat struct {
	marks []string // special tokens that belong to the format
	// begins returns the position in a text where a call may begin, or -1 if there is none yet. The text before it is
	// shown at once.
	begins func(text string) int
	parse  func(text string) ([]call, bool) // parses a text that starts at begins
	id     func() string
	// A required call begins with opens; then follows JSON with a name and key, in a list if listed is set. With an
	// empty key the format is not JSON.
	opens, key string
	listed     bool
}

// call is a tool call in OpenAI's format.
type call struct {
	Index    *int         `json:"index,omitempty"` // in a stream only
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// callsOf detects the format from the source of a chat template; nil = calls are plain text.
func callsOf(template string) *callFormat {
	switch {
	case hasText(template, "<tool_call>"):
		f := &callFormat{begins: mark("<tool_call>"), parse: parseHermes, id: longID, opens: "<tool_call>\n",
			key: "arguments"}
		if hasText(template, "<function=", "<arg_key>") { // calls between tags
			f.key = ""
		}
		return f
	case hasText(template, "[TOOL_CALLS]"):
		f := &callFormat{marks: []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}, begins: mark("[TOOL_CALLS]"),
			parse: parseMistral, id: shortID,
			opens: "[TOOL_CALLS]", key: "arguments", listed: true}
		if hasText(template, "[ARGS]") {
			f.key = ""
		}
		return f
	case hasText(template, "<|python_tag|>", `"parameters": dictionary`, `{"name": function name`):
		return &callFormat{marks: []string{pythonTag}, begins: leading, parse: parseLlama, id: longID,
			key: "parameters"}
	}
	return nil
}

const pythonTag = "<|python_tag|>"

// mark returns a function that finds a text, or a beginning of it at the end, as the start of a call.
func mark(sign string) func(string) int {
	return func(text string) int {
		if i := strings.Index(text, sign); i >= 0 {
			return i
		}
		for n := min(len(sign)-1, len(text)); n > 0; n-- {
			if strings.HasSuffix(text, sign[:n]) {
				return len(text) - n
			}
		}
		return -1
	}
}

// leading finds a call only at the beginning of the answer.
func leading(text string) int {
	trimmed := strings.TrimLeft(text, " \n")
	if trimmed == "" || trimmed[0] == '{' || strings.HasPrefix(trimmed, pythonTag) ||
		strings.HasPrefix(pythonTag, trimmed) {
		return 0
	}
	return -1
}

// parseHermes reads <tool_call>{"name", "arguments"}</tool_call>, any number of times. The answer may end inside the
// last end mark. Marks inside a JSON string belong to the string.
func parseHermes(text string) (calls []call, ok bool) {
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		body, found := strings.CutPrefix(rest, "<tool_call>")
		if !found {
			return nil, false
		}
		value, after, ok := cutJSON(body)
		if !ok {
			return nil, false
		}
		after = strings.TrimSpace(after)
		if rest, found = strings.CutPrefix(after, "</tool_call>"); !found && !strings.HasPrefix("</tool_call>", after) {
			return nil, false
		} else if !found {
			rest = ""
		}
		c, ok := objectCall(value, "arguments")
		if !ok {
			return nil, false
		}
		calls = append(calls, c)
	}
	return calls, len(calls) > 0
}

// parseMistral reads [TOOL_CALLS][{"name", "arguments"}, ...], or [TOOL_CALLS]name[ARGS]{...} any number of times.
// Marks inside a JSON string belong to the string.
func parseMistral(text string) (calls []call, ok bool) {
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		body, found := strings.CutPrefix(rest, "[TOOL_CALLS]")
		if !found {
			return nil, false
		}
		var value json.RawMessage
		if body = strings.TrimSpace(body); !strings.HasPrefix(body, "[") {
			name, arguments, found := strings.Cut(body, "[ARGS]")
			if !found {
				return nil, false
			}
			name, _, _ = strings.Cut(name, "[CALL_ID]")
			if value, rest, ok = cutJSON(arguments); !ok {
				return nil, false
			}
			c, ok := makeCall(strings.TrimSpace(name), value)
			if !ok {
				return nil, false
			}
			calls = append(calls, c)
			continue
		}
		var list []json.RawMessage
		if value, rest, ok = cutJSON(body); !ok || json.Unmarshal(value, &list) != nil {
			return nil, false
		}
		for _, item := range list {
			c, ok := objectCall(item, "arguments")
			if !ok {
				return nil, false
			}
			calls = append(calls, c)
		}
	}
	return calls, len(calls) > 0
}

// cutJSON splits a text after the JSON value with which it begins. It returns ok = false if there is none.
func cutJSON(text string) (value json.RawMessage, after string, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	if d.Decode(&value) != nil {
		return nil, "", false
	}
	return value, text[d.InputOffset():], true
}

// parseLlama reads {"name", "parameters"}, several separated by ;, with or without a leading <|python_tag|>.
func parseLlama(text string) (calls []call, ok bool) {
	rest := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), pythonTag))
	for rest != "" {
		item, after, ok := cutJSON(rest)
		if !ok {
			return nil, false
		}
		c, ok := objectCall(item, "parameters")
		if !ok {
			if c, ok = objectCall(item, "arguments"); !ok {
				return nil, false
			}
		}
		calls = append(calls, c)
		rest = strings.TrimLeft(after, "; \n")
	}
	return calls, len(calls) > 0
}

// objectCall reads {"name": ..., KEY: {...}}.
func objectCall(raw []byte, key string) (call, bool) {
	var object map[string]json.RawMessage
	var name string
	if json.Unmarshal(raw, &object) != nil || json.Unmarshal(object["name"], &name) != nil {
		return call{}, false
	}
	return makeCall(name, object[key])
}

// makeCall accepts arguments that are a JSON object, or a string that contains one.
func makeCall(name string, arguments []byte) (call, bool) {
	arguments = bytes.TrimSpace(arguments)
	var text string
	if json.Unmarshal(arguments, &text) == nil {
		arguments = []byte(strings.TrimSpace(text))
	}
	var compact bytes.Buffer
	if name == "" || len(arguments) == 0 || arguments[0] != '{' || json.Compact(&compact, arguments) != nil {
		return call{}, false
	}
	return call{Type: "function", Function: functionCall{name, compact.String()}}, true
}

func longID() string { return "call_" + randomText(24) }

// shortID returns nine letters and digits, as Mistral's templates require.
func shortID() string { return randomText(9) }

func randomText(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b)
}

// callReader separates tool calls from text while an answer is generated. With a nil format everything is text.
type callReader struct {
	format *callFormat
	held   string
	seen   bool // text was shown
}

// push adds a piece and returns what is certainly text.
func (r *callReader) push(piece string) string {
	if r.format == nil {
		return piece
	}
	r.held += piece
	at := r.format.begins(r.held)
	if r.seen && at == 0 && r.format.begins("x"+r.held) < 0 { // a format whose calls stand only at the beginning
		at = -1
	}
	if at < 0 {
		at = len(r.held)
	}
	out := r.held[:at]
	r.held = r.held[at:]
	r.seen = r.seen || strings.TrimSpace(out) != ""
	return out
}

// finish returns the calls of the answer. If the held back text is not a call, it returns that as text.
func (r *callReader) finish() (text string, calls []call) {
	if r.format == nil || r.held == "" {
		return r.held, nil
	}
	calls, ok := r.format.parse(r.held)
	if !ok {
		return r.held, nil
	}
	for i := range calls {
		calls[i].ID = r.format.id()
	}
	return "", calls
}
