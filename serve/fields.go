package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

// maxDepth is the deepest nesting of a request's JSON: tools describe their parameters by schemas, which nest.
const maxDepth = 64

// marshal encodes JSON as OpenAI does: < and > are not escaped.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// fields reads the object of a request key by key. It keeps the first error.
type fields struct {
	at     string // prefix of key names in errors
	object map[string]json.RawMessage
	asked  []string // keys that were read
	err    *Error
}

// readFields parses a body. The value of key may contain up to ids values, token ids of texts, in addition to
// maxValues.
func readFields(body []byte, key string, ids int) (*fields, *Error) {
	if !utf8.Valid(body) {
		return nil, invalid("", "the body is not UTF-8: byte %d is no part of a character", invalidAt(body))
	}
	whole := extentOf(body)
	if whole.depth > maxDepth {
		return nil, invalid("", "the body's JSON is nested deeper than %d levels", maxDepth)
	}
	if whole.values > maxValues+ids || whole.keys > maxKeys {
		return nil, invalid("", "the body holds more than %d values, or more than %d keys", maxValues+ids, maxKeys)
	}
	f := &fields{}
	if err := jsonerr.Unmarshal(body, &f.object); err != nil {
		return nil, invalid("", "the body is no JSON object: %s", err)
	}
	if whole.values-extentOf(f.object[key]).values > maxValues {
		return nil, invalid("", "the body holds more than %d values besides the %s", maxValues, key)
	}
	if f.object == nil {
		return nil, invalid("", "the body is null, want a JSON object")
	}
	return f, nil
}

func invalidAt(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

func (f *fields) wrong(key, format string, args ...any) {
	if f.err == nil {
		f.err = invalid(f.at+key, "%s: %s", f.at+key, fmt.Sprintf(format, args...))
	}
}

// raw returns the value of a key, or nil if it is absent or null.
func (f *fields) raw(key string) json.RawMessage {
	f.asked = append(f.asked, key)
	v := f.object[key]
	if string(v) == "null" {
		return nil
	}
	return v
}

// read decodes a value into to; want describes the expected type in the error.
func (f *fields) read(key string, to any, want string) bool {
	v := f.raw(key)
	if v == nil {
		return false
	}
	if err := json.Unmarshal(v, to); err != nil {
		f.wrong(key, "is %s, want %s", kindOf(v), want)
		return false
	}
	return true
}

// number reads a number within an interval.
func (f *fields) number(key string, to *float64, least, most float64) bool {
	var x float64
	if !f.read(key, &x, "a number") {
		return false
	}
	if !(x >= least && x <= most) {
		f.wrong(key, "is %v, want %v to %v", x, least, most)
		return false
	}
	*to = x
	return true
}

// whole reads an integer within an interval. 5.0 is an integer.
func (f *fields) whole(key string, to *int, least, most int) bool {
	var x float64
	if !f.read(key, &x, "a whole number") {
		return false
	}
	switch {
	case x != math.Trunc(x) || math.IsInf(x, 0):
		f.wrong(key, "is %v, want a whole number", x)
		return false
	case x < float64(least) || x > float64(most):
		f.wrong(key, "is %s, want %d to %d", bytes.TrimSpace(f.object[key]), least, most)
		return false
	}
	*to = int(x)
	return true
}

func (f *fields) flag(key string, to *bool) bool { return f.read(key, to, "true or false") }

func (f *fields) text(key string, to *string) bool { return f.read(key, to, "a string") }

// texts reads a string or a list of strings.
func (f *fields) texts(key string, to *[]string) bool {
	v := f.raw(key)
	if v == nil {
		return false
	}
	var one string
	if json.Unmarshal(v, &one) == nil {
		*to = []string{one}
		return true
	}
	return f.read(key, to, "a string or a list of strings")
}

// inner reads an object.
func (f *fields) inner(key string) *fields {
	in := &fields{at: f.at + key + "."}
	if !f.read(key, &in.object, "an object") {
		return nil
	}
	return in
}

// done takes over the error of an inner object, or reports a key of it that was not read.
func (f *fields) done(in *fields) {
	in.unknown()
	if f.err == nil {
		f.err = in.err
	}
}

// unknown reports keys that were not read: silently ignoring an option would give a wrong answer.
func (f *fields) unknown() {
	known := map[string]bool{}
	for _, key := range f.asked {
		known[key] = true
	}
	var strange []string
	for key := range f.object {
		if !known[key] {
			strange = append(strange, key)
		}
	}
	if len(strange) == 0 || f.err != nil {
		return
	}
	sort.Strings(strange)
	key := clip(strange[0])
	f.err = invalid(f.at+key, "%s: unknown parameter", f.at+key)
}

// kindOf describes the type of a value for an error.
func kindOf(v json.RawMessage) string {
	switch text := strings.TrimSpace(string(v)); text[0] {
	case '"':
		return "a string"
	case '[':
		return "a list"
	case '{':
		return "an object"
	case 't', 'f':
		return text
	case 'n':
		return "null"
	default:
		return clip(text)
	}
}

// clip shortens a client's text for an error.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
