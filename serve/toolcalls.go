package serve

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strings"
)

// callFormat is how models of a family write calls of tools in their answers.
type callFormat struct {
	marks []string // special tokens that are part of it
	// begins is where in a text a call may begin, -1 where it cannot yet: what stands before is shown as it comes.
	begins func(text string) int
	parse  func(text string) ([]call, bool) // from begins on
	id     func() string
	// A call that is asked for begins with opens; behind it comes JSON with name and key, in a list where listed says
	// so. An empty key: the form is not JSON.
	opens, key string
	listed     bool
}

// call is a tool's call in OpenAI's form.
type call struct {
	Index    *int         `json:"index,omitempty"` // in a stream
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// callsOf detects the format from the source of a chat template; nil: calls are text.
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

// mark begins a call at a text, or where the end of what is there may be the beginning of it.
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

// leading begins a call where the answer begins with one.
func leading(text string) int {
	trimmed := strings.TrimLeft(text, " \n")
	if trimmed == "" || trimmed[0] == '{' || strings.HasPrefix(trimmed, pythonTag) ||
		strings.HasPrefix(pythonTag, trimmed) {
		return 0
	}
	return -1
}

// parseHermes reads <tool_call>{"name", "arguments"}</tool_call>, any number of times.
func parseHermes(text string) (calls []call, ok bool) {
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		body, found := strings.CutPrefix(rest, "<tool_call>")
		if !found {
			return nil, false
		}
		body, rest, _ = strings.Cut(body, "</tool_call>") // the last one may be cut off by the end of the turn
		c, ok := objectCall([]byte(body), "arguments")
		if !ok {
			return nil, false
		}
		calls = append(calls, c)
	}
	return calls, len(calls) > 0
}

// parseMistral reads [TOOL_CALLS][{"name", "arguments"}, ...], or [TOOL_CALLS]name[ARGS]{...} any number of times.
func parseMistral(text string) (calls []call, ok bool) {
	parts := strings.Split(text, "[TOOL_CALLS]")
	if strings.TrimSpace(parts[0]) != "" {
		return nil, false
	}
	for _, part := range parts[1:] {
		part = strings.TrimSpace(part)
		if name, arguments, newer := strings.Cut(part, "[ARGS]"); newer {
			name, _, _ = strings.Cut(name, "[CALL_ID]")
			c, ok := makeCall(strings.TrimSpace(name), []byte(arguments))
			if !ok {
				return nil, false
			}
			calls = append(calls, c)
			continue
		}
		var list []json.RawMessage
		if json.Unmarshal([]byte(part), &list) != nil {
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

// parseLlama reads {"name", "parameters"}, several with ; between them, behind <|python_tag|> or not.
func parseLlama(text string) (calls []call, ok bool) {
	rest := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), pythonTag))
	for rest != "" {
		d := json.NewDecoder(strings.NewReader(rest))
		var item json.RawMessage
		if d.Decode(&item) != nil {
			return nil, false
		}
		c, ok := objectCall(item, "parameters")
		if !ok {
			if c, ok = objectCall(item, "arguments"); !ok {
				return nil, false
			}
		}
		calls = append(calls, c)
		rest = strings.TrimLeft(rest[d.InputOffset():], "; \n")
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

// makeCall takes arguments that are a JSON object, or a string that holds one.
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

// shortID has the nine letters and digits that Mistral's templates ask for.
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

// callReader takes calls out of an answer as it comes. With a nil format everything is text.
type callReader struct {
	format *callFormat
	held   string
	seen   bool // text was shown
}

// push takes the next piece and returns what is text for certain.
func (r *callReader) push(piece string) string {
	if r.format == nil {
		return piece
	}
	r.held += piece
	at := r.format.begins(r.held)
	if r.seen && at == 0 && r.format.begins("x"+r.held) < 0 { // a format whose calls stand at the beginning alone
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

// finish returns the calls of the answer; where what was held back is none it is text.
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
