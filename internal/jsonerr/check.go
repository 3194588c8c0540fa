package jsonerr

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// maxDepth is encoding/json's.
const maxDepth = 10000

// Check finds the first place where data is no JSON value; nil if it is one. It takes what encoding/json takes.
func Check(data []byte) *Error {
	c := checker{data: data}
	return c.document()
}

// tokenBefore is the start of the last token that begins before offset; data is valid.
func tokenBefore(data []byte, offset int) int {
	c := checker{data: data, until: max(offset, 1)}
	c.document()
	return c.token
}

type checker struct {
	data  []byte
	i     int
	open  []byte // the brackets around i
	token int    // start of the last token before until
	until int
}

func (c *checker) document() *Error {
	const mark = "\xef\xbb\xbf"
	if len(c.data) >= len(mark) && string(c.data[:len(mark)]) == mark {
		return at(c.data, 0, "expected a value, found a byte order mark: save the file as UTF-8 without one")
	}
	for {
		entered, err := c.value()
		if err != nil {
			return err
		}
		if entered {
			continue
		}
		if done, err := c.behindValue(); done || err != nil {
			return err
		}
	}
}

// value reads a whole value, or the opening bracket of one and the key in front of its first element.
func (c *checker) value() (entered bool, err *Error) {
	comma := c.i > 0 && c.data[c.i-1] == ','
	c.space()
	switch b := c.peek(); {
	case b == '{' || b == '[':
		if len(c.open) == maxDepth {
			return false, c.wrong("the nesting is deeper than %d levels", maxDepth)
		}
		c.begin()
		c.i++
		c.space()
		if c.peek() == b+2 { // } and ] stand two behind { and [
			c.begin()
			c.i++
			return false, nil
		}
		c.open = append(c.open, b)
		if b == '{' {
			return true, c.key(false)
		}
		return true, nil
	case b == '"':
		c.begin()
		return false, c.str()
	case b == '-' || b >= '0' && b <= '9':
		c.begin()
		return false, c.number()
	case b == ']' && comma:
		return false, c.wrong("expected a value, found ']' after a comma: remove the comma")
	}
	for _, literal := range []string{"true", "false", "null"} {
		if c.word() == literal {
			c.begin()
			c.i += len(literal)
			return false, nil
		}
	}
	return false, c.wrong("expected a value, found %s", c.found())
}

// behindValue moves to where the next value begins; done at the end of the text.
func (c *checker) behindValue() (done bool, err *Error) {
	for {
		c.space()
		if len(c.open) == 0 {
			if c.peek() == ',' && len(bytes.TrimSpace(c.data[c.i+1:])) == 0 {
				return true, c.wrong("expected the end of the text, found ',' behind the value: remove the comma, " +
					"each row stands in a line of its own")
			}
			if c.i < len(c.data) {
				return true, c.wrong("expected the end of the text, found %s behind the value", c.found())
			}
			return true, nil
		}
		last := c.open[len(c.open)-1]
		switch c.peek() {
		case ',':
			c.begin()
			c.i++
			if last == '{' {
				return false, c.key(true)
			}
			return false, nil
		case last + 2:
			c.begin()
			c.i++
			c.open = c.open[:len(c.open)-1]
		default:
			return true, c.wrong("expected ',' or '%c' behind the value, found %s", last+2, c.found())
		}
	}
}

// key reads "name": in an object.
func (c *checker) key(comma bool) *Error {
	c.space()
	switch b := c.peek(); {
	case b == '}' && comma:
		return c.wrong("expected a key, found '}' after a comma: remove the comma")
	case b != '"':
		return c.wrong("expected a key in double quotes, found %s", c.found())
	}
	c.begin()
	if err := c.str(); err != nil {
		return err
	}
	c.space()
	if c.peek() != ':' {
		return c.wrong("expected ':' behind the key, found %s", c.found())
	}
	c.begin()
	c.i++
	return nil
}

func (c *checker) str() *Error {
	for c.i++; ; c.i++ {
		if c.i == len(c.data) {
			return c.wrong("expected '\"' at the end of the string, found %s", c.found())
		}
		switch b := c.data[c.i]; {
		case b == '"':
			c.i++
			return nil
		case b == '\n' || b == '\r':
			return c.wrong(`a string ends before the end of its line: a line break in it is written \n`)
		case b < ' ':
			return c.wrong(`a string holds the control character 0x%02x: it is written \u%04x`, b, b)
		case b == '\\':
			if err := c.escape(); err != nil {
				return err
			}
		}
	}
}

func (c *checker) escape() *Error {
	start := c.i
	c.i++
	switch c.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			c.i++
			if !isHex(c.peek()) {
				return c.wrong("expected four hexadecimal digits behind \\u, found %s", c.found())
			}
		}
		return nil
	}
	if c.i == len(c.data) {
		return c.wrong("expected the rest of the string, found %s", c.found())
	}
	r, _ := utf8.DecodeRune(c.data[c.i:])
	c.i = start
	return c.wrong(`a string holds the escape \%c, which JSON does not have: a backslash itself is written \\`, r)
}

func isHex(b byte) bool {
	return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'f'
}

func (c *checker) number() *Error {
	if c.peek() == '-' {
		c.i++
	}
	zero := c.peek() == '0'
	if c.digits() > 1 && zero {
		c.i -= c.run(c.i)
		return c.wrong("a number may not begin with 0")
	}
	if b := c.data[c.i-1]; b == '-' {
		return c.wrong("expected a digit behind '-', found %s", c.found())
	}
	if c.peek() == '.' {
		c.i++
		if c.digits() == 0 {
			return c.wrong("expected a digit behind the decimal point, found %s", c.found())
		}
	}
	if c.peek()|0x20 == 'e' {
		c.i++
		if b := c.peek(); b == '+' || b == '-' {
			c.i++
		}
		if c.digits() == 0 {
			return c.wrong("expected a digit of the exponent, found %s", c.found())
		}
	}
	return nil
}

// digits skips a run of digits and counts them.
func (c *checker) digits() int {
	from := c.i
	for c.i < len(c.data) && c.data[c.i] >= '0' && c.data[c.i] <= '9' {
		c.i++
	}
	return c.i - from
}

// run counts the digits that end at i.
func (c *checker) run(i int) (n int) {
	for n < i && c.data[i-n-1] >= '0' && c.data[i-n-1] <= '9' {
		n++
	}
	return n
}

func (c *checker) space() {
	for c.i < len(c.data) && (c.data[c.i] == ' ' || c.data[c.i] == '\n' || c.data[c.i] == '\t' || c.data[c.i] == '\r') {
		c.i++
	}
}

// begin notes that a token begins here.
func (c *checker) begin() {
	if c.i < c.until {
		c.token = c.i
	}
}

// peek is the byte at i, 0 at the end.
func (c *checker) peek() byte {
	if c.i < len(c.data) {
		return c.data[c.i]
	}
	return 0
}

// word is the run of letters at i, at most 20.
func (c *checker) word() string {
	end := c.i
	for end < len(c.data) && end < c.i+20 && (c.data[end]|0x20 >= 'a' && c.data[end]|0x20 <= 'z') {
		end++
	}
	return string(c.data[c.i:end])
}

// found words what stands at i.
func (c *checker) found() string {
	if c.i >= len(c.data) {
		return "the end of the text"
	}
	if w := c.word(); len(w) > 1 {
		return w
	}
	r, n := utf8.DecodeRune(c.data[c.i:])
	switch {
	case r == utf8.RuneError && n == 1:
		return fmt.Sprintf("the byte 0x%02x", c.data[c.i])
	case r == '\'':
		return `"'": keys and strings stand in double quotes`
	case r == '/':
		return "'/': JSON has no comments"
	}
	return fmt.Sprintf("%q", r)
}

func (c *checker) wrong(format string, args ...any) *Error {
	err := at(c.data, c.i, format, args...)
	err.CutOff = c.i >= len(c.data)
	return err
}
