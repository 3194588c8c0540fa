package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// stringToken reads a string in single or double quotes, which may run over several lines.
func (l *lexer) stringToken(s string) bool {
	if s[0] != '\'' && s[0] != '"' {
		return false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			l.add("string", l.unescape(s[1:i]))
			l.advance(i + 1)
			return true
		}
	}
	fail(l.line, "unexpected char %s", quote(s[:1]))
	return false
}

var simpleEscapes = map[byte]byte{
	'\\': '\\', '\'': '\'', '"': '"', 'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v',
}

// unescape resolves Python's escapes in a string without its quotes. An unknown escape is kept.
func (l *lexer) unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		c := s[i]
		switch {
		case simpleEscapes[c] != 0:
			b.WriteByte(simpleEscapes[c])
		case c == '\n':
		case c >= '0' && c <= '7':
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			v, _ := strconv.ParseUint(s[i:i+n], 8, 32)
			b.WriteRune(rune(v))
			i += n - 1
		case c == 'x':
			i += l.hexEscape(&b, s[i+1:], 2, `\xXX`)
		case c == 'u':
			i += l.hexEscape(&b, s[i+1:], 4, `\uXXXX`)
		case c == 'U':
			i += l.hexEscape(&b, s[i+1:], 8, `\UXXXXXXXX`)
		case c == 'N':
			fail(l.line, `a string names a character by \N{...}: write the character itself, or its number as \uXXXX`)
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:])
			b.WriteString(escapedTwice(r))
			i += n - 1
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String()
}

func (l *lexer) hexEscape(b *strings.Builder, s string, n int, form string) int {
	if len(s) < n {
		fail(l.line, "truncated %s escape", form)
	}
	v, err := strconv.ParseUint(s[:n], 16, 32)
	switch {
	case err != nil:
		fail(l.line, "truncated %s escape", form)
	case v > utf8.MaxRune:
		fail(l.line, "illegal Unicode character")
	case v >= 0xd800 && v < 0xe000:
		fail(l.line, `\u%04x is half of a surrogate pair, which no text can hold: write \U with eight digits`, v)
	}
	b.WriteRune(rune(v))
	return n
}

// escapedTwice returns the result of a backslash before a character beyond ASCII: Jinja2 first replaces the character
// with an escape, and the preceding backslash then escapes that escape's backslash.
func escapedTwice(r rune) string {
	switch {
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
