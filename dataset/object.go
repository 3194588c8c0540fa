package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/words"
)

const (
	maxNesting = 64
	maxIDs     = maxMaxLength
)

// Object is one row: its keys in the file's order, with values that are still JSON.
type Object struct {
	keys   []string
	values []json.RawMessage
}

// Has reports whether the key is present and its value is not null.
func (o Object) Has(key string) bool {
	v, ok := o.lookup(key)
	return ok && string(v) != "null"
}

func (o Object) value(key string) (json.RawMessage, bool) {
	for i, k := range o.keys {
		if k == key {
			return o.values[i], true
		}
	}
	return nil, false
}

// keyList lists the keys of a row for an error, at most eight of them.
func (o Object) keyList() string {
	if len(o.keys) == 0 {
		return "(none)"
	}
	shown := make([]string, 0, 9)
	for i, k := range o.keys {
		if i == 8 {
			shown = append(shown, fmt.Sprintf("and %d more", len(o.keys)-i))
			break
		}
		shown = append(shown, words.Clip(k, 40))
	}
	return strings.Join(shown, ", ")
}

// syntaxError is an error at a byte of a row; the reader converts the offset into a line.
type syntaxError struct {
	offset int
	text   string
	cutOff bool // the row ends too early
}

func (e *syntaxError) Error() string { return e.text }

// parseObject parses one row. It rejects what encoding/json accepts: invalid UTF-8, duplicate keys, and nesting deeper
// than maxNesting.
func parseObject(data []byte) (Object, error) {
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, n := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return Object{}, &syntaxError{offset: at, text: fmt.Sprintf("byte %d of the row (0x%02x) is not UTF-8", at+1,
			data[at])}
	}
	if err := checkNesting(data); err != nil {
		return Object{}, err
	}
	if err := checkJSON(data); err != nil {
		return Object{}, err
	}
	if kind := kindOf(data); kind != "an object" {
		return Object{}, fmt.Errorf("the row is %s, want an object like {\"prompt\": …, \"completion\": …}", kind)
	}
	return splitObject(data)
}

// parseRow is parseObject that also accepts a conversation without an object around it: a list of messages.
func parseRow(data []byte) (Object, error) {
	o, err := parseObject(data)
	if err != nil && bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) && !errors.As(err, new(*syntaxError)) &&
		roleOfMessages(data) != "" {
		return Object{keys: []string{messages.Roles[0].Name}, values: []json.RawMessage{data}}, nil
	}
	return o, err
}

func checkJSON(data []byte) error {
	wrong := jsonerr.Check(data)
	switch {
	case wrong == nil:
		return nil
	case wrong.CutOff:
		return &syntaxError{offset: len(data),
			text: "the row ends in the middle of its JSON (JSONL needs a whole object on one line)", cutOff: true}
	}
	return &syntaxError{offset: wrong.Offset, text: fmt.Sprintf("byte %d of the row: %s", wrong.Offset+1, wrong.Text)}
}

// checkNesting bounds the nesting depth before the recursive parser reads the row.
func checkNesting(data []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return &syntaxError{offset: i, text: fmt.Sprintf("the row is nested deeper than %d levels", maxNesting)}
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// splitObject splits a valid JSON object into its keys and values.
func splitObject(data []byte) (Object, error) {
	var o Object
	i := skipSpace(data, 0) + 1 // after {
	for {
		i = skipSpace(data, i)
		if data[i] == '}' {
			return o, nil
		}
		if data[i] == ',' {
			i = skipSpace(data, i+1)
		}
		end := skipValue(data, i)
		key := textOf(data[i:end])
		if _, twice := o.value(key); twice {
			return Object{}, &syntaxError{offset: i,
				text: fmt.Sprintf("the key %q is given twice", words.Clip(key, 40))}
		}
		if len(o.keys) == maxKeys {
			return Object{}, &syntaxError{offset: i, text: fmt.Sprintf("the row has more than %d keys", maxKeys)}
		}
		i = skipSpace(data, end) + 1 // after :
		i = skipSpace(data, i)
		end = skipValue(data, i)
		o.keys = append(o.keys, key)
		o.values = append(o.values, json.RawMessage(data[i:end]))
		i = end
	}
}

const maxKeys = 1024

func skipSpace(data []byte, i int) int {
	for i < len(data) && isSpace(data[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// skipValue returns the end of the JSON value that starts at i.
func skipValue(data []byte, i int) int {
	depth, inString := 0, false
	for ; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
			if !inString && depth == 0 {
				return i + 1
			}
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0 && (c == ',' || c == ':' || isSpace(c)):
			return i
		}
	}
	return i
}

// kindOf returns the name of the JSON type of a valid value.
func kindOf(value []byte) string {
	i := skipSpace(value, 0)
	if i == len(value) {
		return "empty"
	}
	switch value[i] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// Fields gives access to a row's values by the roles of a format.
type Fields struct {
	row  Object
	keys map[string]string // role -> key in the file
}

// Key returns the file's key for a role.
func (f Fields) Key(role string) string { return f.keys[role] }

// Present reports whether the role has a value that is not null.
func (f Fields) Present(role string) bool { return f.row.Has(f.keys[role]) }

// Text returns the text of a role; "" if the field is absent or null. Only optional roles can be absent here: the
// required ones were checked before.
func (f Fields) Text(role string) (string, error) {
	if !f.Present(role) {
		return "", nil
	}
	key := f.keys[role]
	raw, _ := f.row.lookup(key)
	if kind := kindOf(raw); kind != "a string" {
		if roleOfMessages(raw) != "" {
			return "", fmt.Errorf(
				"field %q is a list of messages, want a string: messages are read by the formats messages "+
					"and sharegpt, and by chat_completion where both prompt and completion are messages", key)
		}
		return "", fmt.Errorf("field %q is %s, want a string", key, kind)
	}
	if lone := loneSurrogate(raw); lone != "" {
		return "", fmt.Errorf("field %q holds half of a surrogate pair (%s), which is no character", key, lone)
	}
	return textOf(raw), nil
}

// textOf returns the text of a JSON string, which must be valid UTF-8. Most strings have no escapes.
func textOf(raw []byte) string {
	inside := raw[1 : len(raw)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return string(inside)
	}
	return unescape(inside)
}

// JSON returns the value of a role as the file has it; nil if the field is absent or null. A lone surrogate in it is an
// error.
func (f Fields) JSON(role string) ([]byte, error) {
	if !f.Present(role) {
		return nil, nil
	}
	raw, _ := f.row.lookup(f.keys[role])
	if lone := loneSurrogate(raw); lone != "" {
		return nil, fmt.Errorf("field %q holds half of a surrogate pair (%s), which is no character", f.keys[role],
			lone)
	}
	return raw, nil
}

// Ints returns the list of integers of a role.
func (f Fields) Ints(role string) ([]int32, error) {
	key := f.keys[role]
	raw, _ := f.row.lookup(key)
	if kind := kindOf(raw); kind != "a list" {
		return nil, fmt.Errorf("field %q is %s, want a list of whole numbers", key, kind)
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(raw, &elements); err != nil {
		return nil, fmt.Errorf("field %q: %w", key, jsonerr.Unplaced(jsonerr.Explain(raw, err)))
	}
	if len(elements) > maxIDs {
		return nil, fmt.Errorf("field %q has %d elements, more than %d", key, len(elements), maxIDs)
	}
	ints := make([]int32, len(elements))
	for t, e := range elements {
		if err := json.Unmarshal(e, &ints[t]); err != nil || string(e) == "null" {
			return nil, fmt.Errorf("%s[%d] is %s, want a whole number", key, t, words.Clip(string(e), 40))
		}
	}
	return ints, nil
}

// mask is Ints that also accepts true and false, as 1 and 0.
func (f Fields) mask(role string) ([]int32, error) {
	raw, _ := f.row.lookup(f.keys[role])
	var flags []bool
	if kindOf(raw) != "a list" || json.Unmarshal(raw, &flags) != nil {
		return f.Ints(role)
	}
	ints := make([]int32, len(flags))
	for t, flag := range flags {
		if flag {
			ints[t] = 1
		}
	}
	return ints, nil
}

// loneSurrogate finds a \uD800..\uDFFF escape without its other half, which encoding/json would turn into U+FFFD.
func loneSurrogate(raw []byte) string {
	for i := 0; i+5 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if raw[i+1] != 'u' {
			i++
			continue
		}
		switch {
		case isSurrogate(raw[i:], "89ab") && i+11 < len(raw) && raw[i+6] == '\\' && raw[i+7] == 'u' &&
			isSurrogate(raw[i+6:], "cdef"):
			i += 11
		case isSurrogate(raw[i:], "89abcdef"):
			return string(raw[i : i+6])
		default:
			i += 5
		}
	}
	return ""
}

// isSurrogate reports whether escape has the form \uDXhh with its digit X in third.
func isSurrogate(escape []byte, third string) bool {
	return escape[2]|0x20 == 'd' && strings.IndexByte(third, escape[3]|0x20) >= 0
}
