package jinja

import (
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

func filterWordwrap(st *state, b *[maxParams]Value) Value {
	s, ok := asStr(b[0])
	if !ok {
		raise("AttributeError", "'%s' object has no attribute 'splitlines'", b[0].typeName())
	}
	lines := splitLines(st, s, false)
	width := int64(79)
	if n, isInt := indexOf(b[1]); isInt {
		width = min(n, math.MaxInt32) // no line is longer
	} else if b[1] != nil && len(lines) > 0 {
		width = needInt("wordwrap", b[1])
	}
	sep := "\n"
	if _, none := b[3].(None); b[3] != nil && !none {
		sep = needStr("wordwrap", b[3])
	}
	w := wrapper{st: st, width: int(width), long: b[2] == nil || truthy(st, b[2]), hyphens: b[4] == nil || truthy(st, b[4])}
	var paragraphs []string
	for _, line := range lines {
		if width <= 0 {
			raise("ValueError", "invalid width %d (must be > 0)", width)
		}
		st.charge(4 * valueSize)
		paragraphs = append(paragraphs, join(st, w.wrap(line), sep))
	}
	return Str(join(st, paragraphs, sep))
}

// wrapper breaks a line as Python's textwrap does, without expanding tabs or replacing space.
type wrapper struct {
	st            *state
	width         int
	long, hyphens bool
}

func (w *wrapper) wrap(line string) []string {
	chunks := w.chunks(line)
	var lines []string
	for len(chunks) > 0 {
		w.st.charge(4 * valueSize)
		var cur [][]rune
		size := 0
		if len(lines) > 0 && blank(chunks[0]) {
			chunks = chunks[1:]
		}
		for len(chunks) > 0 {
			n := len(chunks[0])
			if size+n > w.width {
				break
			}
			cur, chunks, size = append(cur, chunks[0]), chunks[1:], size+n
		}
		if len(chunks) > 0 && len(chunks[0]) > w.width {
			room := w.width - size
			if w.long {
				end := w.cut(chunks[0], room)
				cur = append(cur, chunks[0][:end])
				chunks[0] = chunks[0][end:]
			} else if len(cur) == 0 {
				cur, chunks = append(cur, chunks[0]), chunks[1:]
			}
		}
		if n := len(cur); n > 0 && blank(cur[n-1]) {
			cur = cur[:n-1]
		}
		if len(cur) > 0 {
			lines = append(lines, w.joined(cur))
		}
	}
	return lines
}

// blank reports whether a chunk is space alone.
func blank(chunk []rune) bool {
	return !slices.ContainsFunc(chunk, func(r rune) bool { return !isSpace(r) })
}

// joined is a line of these chunks.
func (w *wrapper) joined(chunks [][]rune) string {
	n := 0
	for _, c := range chunks {
		n += len(c)
	}
	w.st.step(n)
	w.st.charge(utf8.UTFMax * n)
	var b strings.Builder
	for _, c := range chunks {
		for _, r := range c {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// cut is where a word that is too long is broken: after a hyphen where one fits, else at the width. It looks at no
// more code points than there is room for.
func (w *wrapper) cut(chunk []rune, room int) int {
	end := min(room, len(chunk))
	if !w.hyphens || len(chunk) <= room {
		return end
	}
	i := end - 1
	for i >= 0 && chunk[i] != '-' {
		i--
	}
	for j := range max(i, 0) {
		if chunk[j] != '-' {
			return i + 1
		}
	}
	return end
}

// wrapSpace is what textwrap calls space: ASCII only.
func wrapSpace(r rune) bool { return strings.ContainsRune("\t\n\x0b\x0c\r ", r) }

func isWordRune(r rune) bool { return isAlpha(r) || isNumeric(r) || r == '_' }

func wrapLetter(r rune) bool { return isWordRune(r) && !unicode.Is(unicode.Nd, r) }

func wrapWord(r rune) bool { return isWordRune(r) || strings.ContainsRune("!\"'&.,?", r) }

// chunks parts a line into words, runs of space, and the pieces of words with hyphens.
func (w *wrapper) chunks(line string) [][]rune {
	w.st.step(4 * len(line))
	w.st.charge(4 * len(line))
	s := []rune(line)
	var out [][]rune
	for i := 0; i < len(s); {
		end := i + 1
		switch {
		case wrapSpace(s[i]):
			for end < len(s) && wrapSpace(s[end]) {
				end++
			}
		case w.hyphens && i > 0 && wrapWord(s[i-1]) && dashAt(s, i) > 0:
			end = dashAt(s, i)
		default:
			for end < len(s) && !wrapSpace(s[end]) {
				if w.hyphens && hyphenAt(s, end) {
					end++
					break
				}
				if w.hyphens && wrapWord(s[end-1]) && dashAt(s, end) > 0 {
					break
				}
				end++
			}
		}
		w.st.charge(4 * valueSize)
		out = append(out, s[i:end:end])
		i = end
	}
	return out
}

// dashAt is the end of two or more hyphens at i that a word follows, 0 where there are none.
func dashAt(s []rune, i int) int {
	end := i
	for end < len(s) && s[end] == '-' {
		end++
	}
	if end-i < 2 || end == len(s) || !isWordRune(s[end]) {
		return 0
	}
	return end
}

// hyphenAt reports whether a word may be broken after a hyphen at i: letters stand on both sides.
func hyphenAt(s []rune, i int) bool {
	letter := func(i int) bool { return i >= 0 && i < len(s) && wrapLetter(s[i]) }
	hyphen := func(i int) bool { return i >= 0 && i < len(s) && s[i] == '-' }
	if !hyphen(i) || !letter(i-1) || !(letter(i-2) || hyphen(i-2) && letter(i-3)) {
		return false
	}
	return letter(i+1) && (letter(i+2) || hyphen(i+2) && letter(i+3))
}
