package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// matcher finds all matches of a pattern in s, in order and without overlap.
type matcher interface {
	matches(s string, w *work, out []cut) []cut
}

// literal matches a fixed string.
type literal string

func (l literal) matches(s string, _ *work, out []cut) []cut {
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

func (f runes) matches(s string, _ *work, out []cut) []cut {
	for i, r := range s {
		if f(r) {
			out = append(out, cut{i, i + utf8.RuneLen(r)})
		}
	}
	return out
}

// words matches every word of a wordSplitter.
type words struct{ wordSplitter }

func (w words) matches(s string, _ *work, out []cut) []cut {
	for i := 0; i < len(s); {
		end := w.next(s, i)
		out = append(out, cut{i, end})
		i = end
	}
	return out
}
