package tokenizer

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// matcher finds all matches of a pattern in s, in order and without overlap.
type matcher interface {
	matches(s string, out []cut) []cut
}

// literal matches a fixed string.
type literal string

func (l literal) matches(s string, out []cut) []cut {
	for i := 0; l != ""; {
		k := strings.Index(s[i:], string(l))
		if k < 0 {
			break
		}
		out = append(out, cut{i + k, i + k + len(l)})
		i += k + len(l)
	}
	return out
}

// runes matches each code point for which it is true.
type runes func(rune) bool

func (f runes) matches(s string, out []cut) []cut {
	for i, r := range s {
		if f(r) {
			out = append(out, cut{i, i + utf8.RuneLen(r)})
		}
	}
	return out
}

// words matches every word of a wordSplitter.
type words struct{ wordSplitter }

func (w words) matches(s string, out []cut) []cut {
	for i := 0; i < len(s); {
		end := w.next(s, i)
		out = append(out, cut{i, end})
		i = end
	}
	return out
}

// expression runs a pattern through Go's regexp.
type expression struct {
	re *regexp.Regexp
	// spaces: the pattern ended in \s+(?!\S)|\s+ and its last group is that run, which gives back its last character when more text follows.
	spaces bool
}

// lookAheadTail is how every look-ahead split pattern in use ends; the only look-ahead that expression can run.
const lookAheadTail = `\s+(?!\S)|\s+`

func compileExpression(pattern string) (matcher, error) {
	body, spaces := strings.CutSuffix(pattern, "|"+lookAheadTail)
	source, err := goSyntax(body)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	if spaces {
		source += `|([` + spaceSet + `]+)`
	}
	re, err := regexp.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("pattern %q is not one of the known ones and Go's regexp cannot run it: %w", pattern, err)
	}
	return expression{re, spaces}, nil
}

func (e expression) matches(s string, out []cut) []cut {
	if !e.spaces {
		for _, m := range e.re.FindAllStringIndex(s, -1) {
			out = append(out, cut{m[0], m[1]})
		}
		return out
	}
	for i := 0; i < len(s); {
		m := e.re.FindStringSubmatchIndex(s[i:])
		if m == nil {
			break
		}
		start, end := i+m[0], i+m[1]
		if k := len(m) - 2; m[k] >= 0 && end < len(s) {
			if _, n := utf8.DecodeLastRuneInString(s[start:end]); n < end-start {
				end -= n
			}
		}
		if end == start {
			_, n := utf8.DecodeRuneInString(s[start:])
			i = start + n
			continue
		}
		out = append(out, cut{start, end})
		i = end
	}
	return out
}

// What \s, \d and \w mean in tokenizer files; in Go they are ASCII only.
const (
	spaceSet = `\t\n\v\f\r\x{85}\p{Z}`
	digitSet = `\p{Nd}`
	wordSet  = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}`
)

// goSyntax rewrites the shorthand classes of pattern for Go's regexp.
func goSyntax(pattern string) (string, error) {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '[' && !inClass:
			inClass = true
		case c == '[' && !strings.HasPrefix(pattern[i:], "[:"):
			return "", fmt.Errorf("a class within a class at byte %d cannot be run", i)
		case c == ']' && inClass:
			inClass = false
		}
		if c != '\\' || i+1 == len(pattern) {
			b.WriteByte(c)
			continue
		}
		i++
		set, negated := "", false
		switch pattern[i] {
		case 's', 'S':
			set, negated = spaceSet, pattern[i] == 'S'
		case 'd', 'D':
			set, negated = digitSet, pattern[i] == 'D'
		case 'w', 'W':
			set, negated = wordSet, pattern[i] == 'W'
		default:
			b.WriteByte('\\')
			b.WriteByte(pattern[i])
			continue
		}
		switch {
		case inClass && negated:
			return "", fmt.Errorf(`\%c within a class cannot be run`, pattern[i])
		case inClass:
			b.WriteString(set)
		case negated:
			b.WriteString("[^" + set + "]")
		default:
			b.WriteString("[" + set + "]")
		}
	}
	return b.String(), nil
}
