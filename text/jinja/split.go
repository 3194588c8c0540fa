package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// split splits a str at a separator, or at runs of space if the separator is missing or None.
func split(st *state, fn string, v Value, b *[maxParams]Value, cut func(s, sep string, n int64) []string) Value {
	n := int64(-1)
	if b[1] != nil {
		n = needInt(fn, b[1])
	}
	s := text(v)
	if _, none := b[0].(None); b[0] == nil || none {
		st.scan(8 * len(s))
		st.charge(2 * valueSize * countFields(s))
		return listLike(st, v, cut(s, "", n))
	}
	sep := needStr(fn, b[0])
	if sep == "" {
		raise("ValueError", "empty separator")
	}
	st.scan(2 * len(s))
	st.charge(2 * valueSize * strings.Count(s, sep))
	return listLike(st, v, cut(s, sep, n))
}

func splitLeft(s, sep string, n int64) []string {
	if sep != "" {
		if n < 0 || n >= int64(len(s))+1 {
			return strings.Split(s, sep)
		}
		return strings.SplitN(s, sep, int(n)+1)
	}
	var parts []string
	for {
		s = strings.TrimLeftFunc(s, isSpace)
		if s == "" {
			return parts
		}
		if n == 0 {
			return append(parts, strings.TrimRightFunc(s, isSpace)+tailSpace(s))
		}
		n--
		i := strings.IndexFunc(s, isSpace)
		if i < 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:i])
		s = s[i:]
	}
}

// tailSpace returns the space at the end of the last part, which a limited split keeps.
func tailSpace(s string) string { return s[len(strings.TrimRightFunc(s, isSpace)):] }

func splitRight(s, sep string, n int64) []string {
	if n < 0 {
		return splitLeft(s, sep, -1)
	}
	var parts []string
	for {
		if sep == "" {
			s = strings.TrimRightFunc(s, isSpace)
			if s == "" {
				break
			}
		}
		i, width := strings.LastIndex(s, sep), len(sep)
		if sep == "" {
			i = strings.LastIndexFunc(s, isSpace)
			if i >= 0 {
				_, width = utf8.DecodeRuneInString(s[i:])
			}
		}
		if n == 0 || i < 0 {
			parts = append(parts, s)
			break
		}
		n--
		parts = append(parts, s[i+width:])
		s = s[:i]
	}
	slices.Reverse(parts)
	return parts
}

// countFields returns the number of parts that splitLeft makes at runs of space.
func countFields(s string) int {
	n, inside := 0, false
	for _, r := range s {
		space := isSpace(r)
		if !space && !inside {
			n++
		}
		inside = !space
	}
	return n
}

// splitLines splits at every line break that Python knows.
func splitLines(st *state, s string, keep bool) []string {
	st.scan(4 * len(s))
	count := 0
	for _, r := range s {
		if isLineBreak(r) {
			count++
		}
	}
	st.charge(3 * valueSize * (1 + count))
	var lines []string
	start := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !isLineBreak(r) {
			i += n
			continue
		}
		end := i
		i += n
		if r == '\r' && i < len(s) && s[i] == '\n' {
			i++
		}
		if keep {
			end = i
		}
		lines = append(lines, s[start:end])
		start = i
	}
	if start < len(s) {
		lines = append(lines, s[start:])
	}
	return lines
}

func isLineBreak(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}
