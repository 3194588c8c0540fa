package jinja

import (
	"strings"
	"unicode/utf8"
)

func filterWordwrap(st *state, b *[maxParams]Value) Value {
	s, ok := asStr(b[0])
	if !ok {
		raise("AttributeError", "'%s' object has no attribute 'splitlines'", b[0].typeName())
	}
	width := int64(79)
	if b[1] != nil {
		width = needInt("wordwrap", b[1])
	}
	sep := "\n"
	if _, none := b[3].(None); b[3] != nil && !none {
		sep = needStr("wordwrap", b[3])
	}
	w := wrapper{width: int(width), long: b[2] == nil || truthy(st, b[2]), hyphens: b[4] == nil || truthy(st, b[4])}
	var paragraphs []string
	for _, line := range splitLines(s, false) {
		st.charge(4 * len(line))
		if width <= 0 {
			raise("ValueError", "invalid width %d (must be > 0)", width)
		}
		paragraphs = append(paragraphs, join(st, w.wrap(line), sep))
	}
	return Str(join(st, paragraphs, sep))
}

// wrapper breaks a line as Python's textwrap does, without expanding tabs or replacing space.
type wrapper struct {
	width         int
	long, hyphens bool
}

func (w *wrapper) wrap(line string) []string {
	chunks := w.chunks(line)
	var lines []string
	for len(chunks) > 0 {
		var cur []string
		size := 0
		if len(lines) > 0 && strings.TrimFunc(chunks[0], isSpace) == "" {
			chunks = chunks[1:]
		}
		for len(chunks) > 0 {
			n := utf8.RuneCountInString(chunks[0])
			if size+n > w.width {
				break
			}
			cur, chunks, size = append(cur, chunks[0]), chunks[1:], size+n
		}
		if len(chunks) > 0 && utf8.RuneCountInString(chunks[0]) > w.width {
			room := max(w.width-size, 1)
			if w.long {
				end := w.cut(chunks[0], room)
				cur = append(cur, chunks[0][:end])
				chunks[0] = chunks[0][end:]
			} else if len(cur) == 0 {
				cur, chunks = append(cur, chunks[0]), chunks[1:]
			}
		}
		if n := len(cur); n > 0 && strings.TrimFunc(cur[n-1], isSpace) == "" {
			cur = cur[:n-1]
		}
		if len(cur) > 0 {
			lines = append(lines, strings.Join(cur, ""))
		}
	}
	return lines
}

// cut is where a word that is too long is broken: after a hyphen where one fits, else at the width.
func (w *wrapper) cut(chunk string, room int) int {
	end := byteOffset(chunk, room)
	if w.hyphens && utf8.RuneCountInString(chunk) > room {
		if i := strings.LastIndexByte(chunk[:end], '-'); i > 0 && strings.Trim(chunk[:i], "-") != "" {
			return i + 1
		}
	}
	return end
}

// wrapSpace is what textwrap calls space: ASCII only.
func wrapSpace(r rune) bool { return strings.ContainsRune("\t\n\x0b\x0c\r ", r) }

// chunks parts a line into words, runs of space, and the pieces of words with hyphens.
func (w *wrapper) chunks(line string) []string {
	var out []string
	for line != "" {
		space := false
		if r, _ := utf8.DecodeRuneInString(line); wrapSpace(r) {
			space = true
		}
		n := strings.IndexFunc(line, func(r rune) bool { return wrapSpace(r) != space })
		if n < 0 {
			n = len(line)
		}
		if space || !w.hyphens {
			out = append(out, line[:n])
		} else {
			out = append(out, hyphenated(line[:n])...)
		}
		line = line[n:]
	}
	return out
}

func wrapLetter(r rune) bool {
	return (isAlpha(r) || isNumeric(r) || r == '_') && !(r >= '0' && r <= '9') && !isDigit(r)
}

func wrapWord(r rune) bool {
	return isAlpha(r) || isNumeric(r) || r == '_' || strings.ContainsRune("!\"'&.,?", r)
}

// hyphenated parts a word after a hyphen between letters, and at a dash of several hyphens.
func hyphenated(word string) []string {
	var out []string
	runes := []rune(word)
	start := 0
	for i := 0; i < len(runes); i++ {
		if runes[i] != '-' {
			continue
		}
		end := i
		for end < len(runes) && runes[end] == '-' {
			end++
		}
		if end-i >= 2 {
			if (i > start && wrapWord(runes[i-1])) && end < len(runes) && isWordRune(runes[end]) {
				out = append(out, string(runes[start:i]), string(runes[i:end]))
				start = end
			} else if i == start && end < len(runes) && isWordRune(runes[end]) && start > 0 {
				out = append(out, string(runes[i:end]))
				start = end
			}
			i = end - 1
			continue
		}
		before := i-start >= 2 && wrapLetter(runes[i-1]) && wrapLetter(runes[i-2])
		before = before || i-start >= 3 && wrapLetter(runes[i-1]) && runes[i-2] == '-' && wrapLetter(runes[i-3])
		after := i+2 < len(runes) && wrapLetter(runes[i+1]) && (wrapLetter(runes[i+2]) || runes[i+2] == '-' && i+3 < len(runes) && wrapLetter(runes[i+3]))
		if before && after {
			out = append(out, string(runes[start:i+1]))
			start = i + 1
		}
	}
	return append(out, string(runes[start:]))
}

func isWordRune(r rune) bool { return isAlpha(r) || isNumeric(r) || r == '_' }
