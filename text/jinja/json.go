package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth is the largest depth of nested arrays and objects of a data file.
const maxJSONDepth = 500

// FromJSON parses one JSON value as Python's json.loads does: integers of any size, NaN and Infinity; if keys are
// equal, the last value takes the position of the first. It refuses a string with half of a surrogate pair, because no
// tokenizer could encode it.
func FromJSON(raw []byte) (v Value, err error) {
	r := &jsonReader{s: string(raw)}
	defer func() {
		if e := recover(); e != nil {
			message, ok := e.(jsonError)
			if !ok {
				panic(e)
			}
			v, err = nil, fmt.Errorf("JSON at byte %d: %s", r.i, string(message))
		}
	}()
	if i := invalidUTF8(r.s); i >= 0 {
		r.i = i
		r.fail("not UTF-8: the byte 0x%02x", r.s[i])
	}
	v = r.value(0)
	r.space()
	if r.i < len(r.s) {
		r.fail("more text follows the value")
	}
	return v, nil
}

type jsonError string

type jsonReader struct {
	s    string
	i    int
	keys map[string]Value // earlier keys as Values
}

func (r *jsonReader) fail(format string, args ...any) {
	panic(jsonError(fmt.Sprintf(format, args...)))
}

func (r *jsonReader) space() {
	for r.i < len(r.s) && (r.s[r.i] == ' ' || r.s[r.i] == '\n' || r.s[r.i] == '\t' || r.s[r.i] == '\r') {
		r.i++
	}
}

func (r *jsonReader) value(depth int) Value {
	if depth > maxJSONDepth {
		r.fail("arrays and objects lie more than %d deep in each other", maxJSONDepth)
	}
	r.space()
	if r.i >= len(r.s) {
		r.fail("a value is missing")
	}
	switch c := r.s[r.i]; {
	case c == '"':
		return Str(r.text())
	case c == '{':
		return r.object(depth)
	case c == '[':
		return r.array(depth)
	case c == '-' || isDecimal(c):
		return r.number()
	}
	for word, v := range jsonWords {
		if strings.HasPrefix(r.s[r.i:], word) {
			r.i += len(word)
			return v
		}
	}
	c, _ := utf8.DecodeRuneInString(r.s[r.i:])
	r.fail("a value cannot begin with %q", c)
	return nil
}

var jsonWords = map[string]Value{"null": None{}, "true": Bool(true), "false": Bool(false),
	"NaN": Float(math.NaN()), "Infinity": Float(math.Inf(1))}

func (r *jsonReader) object(depth int) Value {
	r.i++
	d := NewDict()
	for first := true; ; first = false {
		r.space()
		if r.next('}', first) {
			return d
		}
		r.space()
		if r.i >= len(r.s) || r.s[r.i] != '"' {
			r.fail("a key in double quotes is missing")
		}
		key := r.text()
		r.space()
		if r.i >= len(r.s) || r.s[r.i] != ':' {
			r.fail("a colon is missing after a key")
		}
		r.i++
		v := r.value(depth + 1)
		d.put(nil, r.key(key), key, v)
	}
}

// key returns a key as a Value, the same one for equal keys, because conversations repeat few keys.
func (r *jsonReader) key(s string) Value {
	if v, ok := r.keys[s]; ok {
		return v
	}
	if r.keys == nil {
		r.keys = map[string]Value{}
	}
	var v Value = Str(s)
	if len(r.keys) < 64 {
		r.keys[s] = v
	}
	return v
}

func (r *jsonReader) array(depth int) Value {
	r.i++
	l := &List{}
	for first := true; ; first = false {
		r.space()
		if r.next(']', first) {
			return l
		}
		l.Items = append(l.Items, r.value(depth+1))
	}
}

// next skips the comma before an item, and reports whether the closing bracket follows in place of an item.
func (r *jsonReader) next(end byte, first bool) bool {
	if r.i >= len(r.s) {
		r.fail("%q is missing", end)
	}
	switch {
	case r.s[r.i] == end:
		r.i++
		return true
	case first:
		return false
	case r.s[r.i] != ',':
		r.fail("a comma or %q is missing", end)
	}
	r.i++
	r.space()
	if r.i < len(r.s) && r.s[r.i] == end {
		r.fail("a value is missing after a comma")
	}
	return false
}

func (r *jsonReader) number() Value {
	start := r.i
	digits := func() int {
		n := r.i
		for r.i < len(r.s) && isDecimal(r.s[r.i]) {
			r.i++
		}
		return r.i - n
	}
	if r.s[r.i] == '-' {
		r.i++
		if strings.HasPrefix(r.s[r.i:], "Infinity") {
			r.i += len("Infinity")
			return Float(math.Inf(-1))
		}
	}
	if zero := r.i; digits() == 0 {
		r.fail("a number has no digits")
	} else if r.s[zero] == '0' && r.i > zero+1 {
		r.fail("a number begins with 0")
	}
	whole := true
	if r.i+1 < len(r.s) && r.s[r.i] == '.' && isDecimal(r.s[r.i+1]) {
		r.i++
		digits()
		whole = false
	}
	if r.i+1 < len(r.s) && r.s[r.i]|0x20 == 'e' {
		n := r.i + 1
		if r.s[n] == '+' || r.s[n] == '-' {
			n++
		}
		if n < len(r.s) && isDecimal(r.s[n]) {
			r.i = n
			digits()
			whole = false
		}
	}
	text := r.s[start:r.i]
	if !whole {
		f, _ := strconv.ParseFloat(text, 64) // infinity if it is too large, as in Python
		return Float(f)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return Int(n)
	}
	if len(text) > maxIntDigits {
		r.fail("an integer has more than %d digits", maxIntDigits)
	}
	n, _ := new(big.Int).SetString(text, 10)
	return norm(n)
}

func (r *jsonReader) text() string {
	r.i++
	start := r.i
	for r.i < len(r.s) && r.s[r.i] != '"' && r.s[r.i] != '\\' && r.s[r.i] >= ' ' {
		r.i++
	}
	if r.i < len(r.s) && r.s[r.i] == '"' {
		r.i++
		return r.s[start : r.i-1]
	}
	b := []byte(r.s[start:r.i])
	for r.i < len(r.s) {
		c := r.s[r.i]
		switch {
		case c == '"':
			r.i++
			return string(b)
		case c < ' ':
			r.fail("a string holds the control character 0x%02x unescaped", c)
		case c == '\\':
			b = r.escape(b)
		default:
			b = append(b, c)
			r.i++
		}
	}
	r.fail("a string does not end")
	return ""
}

func (r *jsonReader) escape(b []byte) []byte {
	if r.i+1 >= len(r.s) {
		r.fail("a string does not end")
	}
	c := r.s[r.i+1]
	r.i += 2
	switch c {
	case '"', '\\', '/':
		return append(b, c)
	case 'b':
		return append(b, '\b')
	case 'f':
		return append(b, '\f')
	case 'n':
		return append(b, '\n')
	case 'r':
		return append(b, '\r')
	case 't':
		return append(b, '\t')
	case 'u':
		return utf8.AppendRune(b, r.unicode())
	}
	r.fail("unknown escape \\%c", c)
	return nil
}

func (r *jsonReader) unicode() rune {
	first := r.hex()
	if !utf16.IsSurrogate(first) {
		return first
	}
	if strings.HasPrefix(r.s[r.i:], `\u`) {
		r.i += 2
		if c := utf16.DecodeRune(first, r.hex()); c != utf8.RuneError {
			return c
		}
	}
	r.fail("\\u%04x is half of a surrogate pair without the other half: no tokenizer can encode it", first)
	return 0
}

func (r *jsonReader) hex() rune {
	if r.i+4 > len(r.s) {
		r.fail("\\u wants four hexadecimal digits")
	}
	n, err := strconv.ParseUint(r.s[r.i:r.i+4], 16, 32)
	if err != nil {
		r.fail("\\u wants four hexadecimal digits, got %q", r.s[r.i:r.i+4])
	}
	r.i += 4
	return rune(n)
}
