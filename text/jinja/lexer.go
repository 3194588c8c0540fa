package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a token of a template. Kinds have Jinja2's names; an operator's kind is the operator itself.
type token struct {
	kind  string // data, begin, end ({% %}), print, endprint ({{ }}), name, string, number, an operator, eof
	text  string // text of data, names and strings; for messages, the source text
	value Value  // value of numbers
	line  int
}

type lexer struct {
	src    string
	pos    int
	line   int
	tokens []token
	// lineStart: what came before ended with a line break that is gone
	lineStart bool
}

func invalidUTF8(s string) int {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// lex splits a template into tokens. It ignores one line break at the end.
func lex(source string) []token {
	src := strings.TrimSuffix(newlines.Replace(source), "\n")
	l := &lexer{src: src, line: 1, lineStart: true}
	for l.pos < len(src) {
		l.root()
	}
	l.add("eof", "")
	return l.tokens
}

func (l *lexer) add(kind, text string) {
	l.tokens = append(l.tokens, token{kind: kind, text: text, line: l.line})
}

// advance moves n bytes forward and counts lines.
func (l *lexer) advance(n int) {
	l.line += strings.Count(l.src[l.pos:l.pos+n], "\n")
	l.pos += n
}

// root reads data up to the next tag, and the tag.
func (l *lexer) root() {
	rest := l.src[l.pos:]
	at := nextTag(rest)
	if at < 0 {
		l.add("data", rest)
		l.advance(len(rest))
		return
	}
	kind := rest[at+1]
	sign := byte(0)
	if at+2 < len(rest) && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	l.data(rest[:at], sign, kind != '{')
	l.advance(at)
	if kind == '%' {
		if n := rawTag(l.src[l.pos:], "raw"); n > 0 {
			l.raw(n)
			return
		}
	}
	n := 2
	if sign != 0 {
		n = 3
	}
	switch kind {
	case '#':
		l.advance(n)
		l.comment()
	case '%':
		l.add("begin", "{%")
		l.advance(n)
		l.lineStart = false
		l.inside(true)
	default:
		l.add("print", "{{")
		l.advance(n)
		l.lineStart = false
		l.inside(false)
	}
}

// nextTag returns the position of the next {%, {{ or {#, -1 if there is none.
func nextTag(s string) int {
	for i := 0; ; {
		j := strings.IndexByte(s[i:], '{')
		if j < 0 || i+j+1 >= len(s) {
			return -1
		}
		i += j
		if c := s[i+1]; c == '%' || c == '{' || c == '#' {
			return i
		}
		i++
	}
}

// data adds template text, trimmed as the sign of the following tag requires: all space before {%- is removed, and the
// space before a tag that begins its line is removed unless the tag prints or has a +.
func (l *lexer) data(text string, sign byte, block bool) {
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, isSpace)
	case sign != '+' && block:
		start := strings.LastIndexByte(text, '\n') + 1
		if (start > 0 || l.lineStart) && strings.TrimFunc(text[start:], isSpace) == "" {
			text = text[:start]
		}
	}
	if text != "" {
		l.add("data", text)
	}
}

// isSpace reports whether Python's str.isspace and regular expressions count a rune as space.
func isSpace(r rune) bool {
	switch {
	case r < 0x80:
		return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f
	case r == 0x200b || r == 0xfeff:
		return false
	}
	return unicode.IsSpace(r)
}

func skipSpace(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

// rawTag returns the length of {% raw %} or {% endraw %} at the start of s, including the space that it absorbs.
func rawTag(s, word string) int {
	i := 2
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	i += skipSpace(s[min(i, len(s)):])
	if !strings.HasPrefix(s[min(i, len(s)):], word) {
		return 0
	}
	i += len(word)
	i += skipSpace(s[i:])
	switch rest := s[i:]; {
	case strings.HasPrefix(rest, "-%}"):
		i += 3
		return i + skipSpace(s[i:])
	case strings.HasPrefix(rest, "%}"):
		i += 2
		if word == "endraw" && strings.HasPrefix(s[i:], "\n") {
			i++
		}
		return i
	case word == "endraw" && strings.HasPrefix(rest, "+%}"):
		return i + 3
	}
	return 0
}

// raw reads up to {% endraw %}; n is the length of the opening tag.
func (l *lexer) raw(n int) {
	line := l.line
	l.advance(n)
	l.lineStart = l.src[l.pos-1] == '\n'
	rest := l.src[l.pos:]
	for i := 0; rest != ""; i++ {
		j := strings.Index(rest[i:], "{%")
		if j < 0 {
			fail(line, "Missing end of raw directive")
		}
		i += j
		end := rawTag(rest[i:], "endraw")
		if end == 0 {
			continue
		}
		sign := rest[i+2]
		l.data(rest[:i], sign, true)
		l.advance(i + end)
		l.lineStart = l.src[l.pos-1] == '\n'
		return
	}
}

func (l *lexer) comment() {
	rest := l.src[l.pos:]
	if rest == "" {
		return
	}
	i := strings.Index(rest, "#}")
	if i < 0 {
		fail(l.line, "Missing end of comment tag")
	}
	n := i + 2
	switch {
	case i > 0 && rest[i-1] == '-':
		n += skipSpace(rest[n:])
	case i > 0 && rest[i-1] == '+':
	case strings.HasPrefix(rest[n:], "\n"):
		n++
	}
	l.advance(n)
	l.lineStart = l.src[l.pos-1] == '\n'
}

// inside reads the tokens of {% %} or {{ }} and its end. An end only counts outside of brackets.
func (l *lexer) inside(block bool) {
	var open []byte
	for {
		l.advance(skipSpace(l.src[l.pos:]))
		rest := l.src[l.pos:]
		if rest == "" {
			return
		}
		if len(open) == 0 {
			if n := endOf(rest, block); n > 0 {
				l.add(map[bool]string{true: "end", false: "endprint"}[block], "")
				l.advance(n)
				l.lineStart = l.src[l.pos-1] == '\n'
				return
			}
		}
		if l.numberToken(rest) || l.nameToken(rest) || l.stringToken(rest) {
			continue
		}
		op := operatorAt(rest)
		switch op {
		case "":
			r, _ := utf8.DecodeRuneInString(rest)
			fail(l.line, "unexpected char %s", quote(string(r)))
		case "(":
			open = append(open, ')')
		case "[":
			open = append(open, ']')
		case "{":
			open = append(open, '}')
		case ")", "]", "}":
			if len(open) == 0 {
				fail(l.line, "unexpected '%s'", op)
			}
			if want := open[len(open)-1]; want != op[0] {
				fail(l.line, "unexpected '%s', expected '%c'", op, want)
			}
			open = open[:len(open)-1]
		}
		l.add(op, op)
		l.pos += len(op)
	}
}

// endOf returns the length of %} or }} with the space that it absorbs, 0 if s does not begin with one.
func endOf(s string, block bool) int {
	mark := "}}"
	if block {
		mark = "%}"
	}
	switch {
	case strings.HasPrefix(s, "-"+mark):
		return 3 + skipSpace(s[3:])
	case block && strings.HasPrefix(s, "+"+mark):
		return 3
	case block && strings.HasPrefix(s, mark+"\n"):
		return 3
	case strings.HasPrefix(s, mark):
		return 2
	}
	return 0
}

func operatorAt(s string) string {
	if len(s) >= 2 {
		switch s[:2] {
		case "//", "**", "==", "!=", ">=", "<=":
			return s[:2]
		}
	}
	if strings.IndexByte("+-/*%~[](){}><=.:|,;", s[0]) >= 0 {
		return s[:1]
	}
	return ""
}

func isNameStart(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.Is(unicode.Nl, r) }

func isNamePart(r rune) bool {
	return isNameStart(r) || unicode.Is(unicode.Nd, r) || unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Mc, r) ||
		unicode.Is(unicode.Pc, r)
}

func (l *lexer) nameToken(s string) bool {
	n := len(s) - len(strings.TrimLeftFunc(s, isNamePart))
	if n == 0 {
		return false
	}
	if r, _ := utf8.DecodeRuneInString(s); !isNameStart(r) {
		fail(l.line, "Invalid character in identifier")
	}
	l.add("name", s[:n])
	l.pos += n
	return true
}
