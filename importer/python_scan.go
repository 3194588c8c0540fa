package importer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// scan splits a program into tokens without comments and white space.
func (p *program) scan() error {
	s, line := p.src, 1
	for i := 0; i < len(s); {
		if len(p.toks) >= maxTokens {
			return fmt.Errorf("it has more than %d words: this is no training script", maxTokens)
		}
		c := s[i]
		r, _ := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == '\n':
			p.add(token{kind: 'e', from: i, to: i + 1, line: line})
			line++
			i++
		case c == '\\' && i+1 < len(s) && s[i+1] == '\n':
			line++
			i += 2
		case c == ' ' || c == '\t' || c == '\r' || c == '\f':
			i++
		case c == '#':
			if end := strings.IndexByte(s[i:], '\n'); end >= 0 {
				i += end
			} else {
				i = len(s)
			}
		case c == '"' || c == '\'':
			t, err := scanString(s, i, i, line)
			if err != nil {
				return err
			}
			p.add(t)
			line += strings.Count(s[i:t.to], "\n")
			i = t.to
		case c == '_' || unicode.IsLetter(r):
			end := i + nameLen(s[i:])
			if end < len(s) && (s[end] == '"' || s[end] == '\'') && isPrefix(s[i:end]) {
				t, err := scanString(s, i, end, line)
				if err != nil {
					return err
				}
				p.add(t)
				line += strings.Count(s[i:t.to], "\n")
				i = t.to
				continue
			}
			p.add(token{kind: 'n', text: s[i:end], from: i, to: end, line: line})
			i = end
		case c >= '0' && c <= '9' || c == '.' && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9':
			end := i + numberLen(s[i:])
			p.add(token{kind: 'd', text: s[i:end], from: i, to: end, line: line})
			i = end
		default:
			p.add(token{kind: sign(c), text: s[i : i+1], from: i, to: i + 1, line: line})
			i++
		}
	}
	return nil
}

func (p *program) add(t token) { p.toks = append(p.toks, t) }

// sign returns a byte as a token kind that no other token has.
func sign(c byte) byte {
	if c >= 0x80 || c == 'n' || c == 'd' || c == 's' || c == 'e' {
		return '?'
	}
	return c
}

func nameLen(s string) int {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return i
		}
	}
	return len(s)
}

// numberLen returns the length of a number such as 2e-4 or 1_000.
func numberLen(s string) int {
	for i := range len(s) {
		c := s[i]
		exponent := i > 0 && (s[i-1] == 'e' || s[i-1] == 'E') && (c == '-' || c == '+')
		if c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !exponent {
			return i
		}
	}
	return len(s)
}

func isPrefix(s string) bool {
	return len(s) <= 2 && strings.Trim(strings.ToLower(s), "rbfu") == ""
}

// scanString reads a string whose prefix begins at from and whose quote is at i.
func scanString(s string, from, i, line int) (token, error) {
	prefix := strings.ToLower(s[from:i])
	quote := s[i : i+1]
	if strings.HasPrefix(s[i:], quote+quote+quote) {
		quote = s[i : i+3]
	}
	for j := i + len(quote); j < len(s); j++ {
		switch {
		case s[j] == '\\':
			j++
		case len(quote) == 1 && s[j] == '\n':
			return token{}, fmt.Errorf("line %d: it is no Python: a text has no end", line)
		case strings.HasPrefix(s[j:], quote):
			text := s[i+len(quote) : j]
			if !strings.Contains(prefix, "r") {
				text = unescape(text)
			}
			return token{kind: 's', text: text, from: from, to: j + len(quote), line: line,
				format: strings.Contains(prefix, "f")}, nil
		}
	}
	return token{}, fmt.Errorf("line %d: it is no Python: a text has no end", line)
}

// unescape decodes the escapes that Python and Go share; others stay unchanged.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for s != "" {
		if strings.HasPrefix(s, "\\\n") {
			s = s[2:]
			continue
		}
		r, multi, rest, err := strconv.UnquoteChar(s, 0)
		switch {
		case err == nil && (multi || r < utf8.RuneSelf):
			b.WriteRune(r)
		case err == nil:
			b.WriteByte(byte(r))
		case strings.HasPrefix(s, `\'`) || strings.HasPrefix(s, `\"`):
			b.WriteByte(s[1])
			rest = s[2:]
		default:
			b.WriteByte(s[0])
			rest = s[1:]
		}
		s = rest
	}
	return b.String()
}
