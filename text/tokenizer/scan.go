package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unsafe"
)

// entry is one token of a vocabulary.
type entry struct {
	token string
	id    int64
}

// scanner reads the large parts of tokenizer files, several times faster than encoding/json, which reads everything
// else.
type scanner struct {
	s string
	i int
}

func (c *scanner) space() {
	for c.i < len(c.s) && (c.s[c.i] == ' ' || c.s[c.i] == '\n' || c.s[c.i] == '\t' || c.s[c.i] == '\r') {
		c.i++
	}
}

// take skips b if it is the next byte.
func (c *scanner) take(b byte) bool {
	c.space()
	if c.i < len(c.s) && c.s[c.i] == b {
		c.i++
		return true
	}
	return false
}

// str parses a string.
func (c *scanner) str() (string, bool) {
	if !c.take('"') {
		return "", false
	}
	start, escaped, ascii := c.i, false, true
	for c.i < len(c.s) && c.s[c.i] != '"' {
		if c.s[c.i] == '\\' {
			escaped = true
			c.i++
		}
		if c.i < len(c.s) && c.s[c.i] >= 0x80 {
			ascii = false
		}
		c.i++
	}
	if c.i >= len(c.s) {
		return "", false
	}
	text := c.s[start:c.i]
	c.i++
	if escaped {
		var out string
		if json.Unmarshal([]byte(c.s[start-1:c.i]), &out) != nil {
			return "", false
		}
		return out, true
	}
	if !ascii {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return text, true
}

// word returns the text up to the end of a number.
func (c *scanner) word() string {
	c.space()
	start := c.i
	for c.i < len(c.s) && strings.IndexByte(",}] \n\t\r", c.s[c.i]) < 0 {
		c.i++
	}
	return c.s[start:c.i]
}

// number parses an integer.
func (c *scanner) number() (int64, bool) {
	n, err := strconv.ParseInt(c.word(), 10, 64)
	return n, err == nil
}

// float parses a finite number.
func (c *scanner) float() (float64, bool) {
	x, err := strconv.ParseFloat(c.word(), 64)
	return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
}

// end parses the closing bracket of a value and checks that nothing follows.
func (c *scanner) end(bracket byte, what string) error {
	if !c.take(bracket) {
		return fmt.Errorf("%s: invalid JSON at byte %d of it", what, c.i)
	}
	if c.space(); c.i != len(c.s) {
		return fmt.Errorf("%s: more text after its end", what)
	}
	return nil
}

// value returns the text of the next value without validating it; its reader does that.
func (c *scanner) value() (string, bool) {
	c.space()
	start, depth := c.i, 0
	for c.i < len(c.s) {
		switch c.s[c.i] {
		case '"':
			if !c.skipString() {
				return "", false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return c.s[start:c.i], c.i > start
			}
		case ',':
			if depth == 0 {
				return c.s[start:c.i], c.i > start
			}
		}
		c.i++
	}
	return c.s[start:], depth == 0 && c.i > start
}

// skipString moves past the string that begins here.
func (c *scanner) skipString() bool {
	for c.i++; c.i < len(c.s); c.i++ {
		switch c.s[c.i] {
		case '\\':
			c.i++
		case '"':
			c.i++
			return true
		}
	}
	return false
}

// object calls field with the name and the text of every field of the object b.
func object(b string, field func(name, value string) error) error {
	c := &scanner{s: b}
	if !c.take('{') {
		return fmt.Errorf("not a JSON object")
	}
	for !c.take('}') {
		name, ok := c.str()
		if !ok || !c.take(':') {
			return fmt.Errorf("invalid JSON at byte %d", c.i)
		}
		value, ok := c.value()
		if !ok {
			return fmt.Errorf("the value of %q does not end", name)
		}
		if err := field(name, strings.TrimRight(value, " \t\r\n")); err != nil {
			return err
		}
		if !c.take(',') {
			return c.end('}', "the object")
		}
	}
	c.space()
	if c.i != len(c.s) {
		return fmt.Errorf("more text after the end of the object")
	}
	return nil
}

// elements returns an upper bound of the number of elements of b: it counts all commas, also those within strings.
func elements(b string) int { return min(strings.Count(b, ",")+1, len(b)/4) }

// textOf returns the text of a file without a copy. The bytes must not change, because the vocabulary's tokens are
// parts of it.
func textOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func readVocab(b string) ([]entry, error) {
	c := &scanner{s: b}
	if !c.take('{') {
		return nil, fmt.Errorf("vocab: not an object of token to id")
	}
	if c.take('}') {
		return nil, fmt.Errorf("vocab: empty")
	}
	out := make([]entry, 0, elements(b))
	for {
		token, ok := c.str()
		if !ok || !c.take(':') {
			return nil, fmt.Errorf("vocab: token %d is not a string", len(out))
		}
		id, ok := c.number()
		if !ok {
			return nil, fmt.Errorf("vocab: the id of %q is not an integer", token)
		}
		out = append(out, entry{token, id})
		if !c.take(',') {
			return out, c.end('}', "vocab")
		}
	}
}

// readMerges parses both forms: "left right" and ["left", "right"].
func readMerges(b string) ([][2]string, error) {
	c := &scanner{s: b}
	if !c.take('[') {
		return nil, fmt.Errorf("merges: not a list")
	}
	if c.take(']') {
		return nil, nil
	}
	n := elements(b)
	if c.take('[') { // pairs as lists contain a comma themselves
		c.i--
		n = n/2 + 1
	}
	out := make([][2]string, 0, n)
	for {
		var pair [2]string
		if c.take('[') {
			left, ok := c.str()
			comma := c.take(',')
			right, ok2 := c.str()
			if !ok || !comma || !ok2 || !c.take(']') {
				return nil, fmt.Errorf("merges[%d]: not two strings", len(out))
			}
			pair = [2]string{left, right}
		} else {
			line, ok := c.str()
			if !ok {
				return nil, fmt.Errorf("merges[%d]: neither a string nor a list", len(out))
			}
			left, right, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(right, " ") {
				return nil, fmt.Errorf("merges[%d]: %q is not two tokens parted by one space", len(out), line)
			}
			pair = [2]string{left, right}
		}
		out = append(out, pair)
		if !c.take(',') {
			return out, c.end(']', "merges")
		}
	}
}

// scored is a token of a Unigram vocabulary; its index is its id.
type scored struct {
	token string
	score float64
}

// readScores parses [["token", score], ...].
func readScores(b string) ([]scored, error) {
	c := &scanner{s: b}
	if !c.take('[') {
		return nil, fmt.Errorf("vocab: not a list of tokens with their scores")
	}
	if c.take(']') {
		return nil, fmt.Errorf("vocab: empty")
	}
	out := make([]scored, 0, elements(b)/2+1)
	for {
		bracket := c.take('[')
		token, ok := c.str()
		comma := c.take(',')
		score, ok2 := c.float()
		if !bracket || !ok || !comma || !ok2 || !c.take(']') {
			return nil, fmt.Errorf("vocab[%d]: not a string and a number", len(out))
		}
		out = append(out, scored{token, score})
		if !c.take(',') {
			return out, c.end(']', "vocab")
		}
	}
}
