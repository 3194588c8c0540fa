package chat

import (
	"strings"
	"unicode/utf8"
)

// A conversation is rendered a second time with marks around its texts: one private-use character where a text begins,
// another where it ends. Everything between two marks came from that text; everything outside was written by the
// template. This is used for a conversation only if filling in the texts gives its plain rendering, byte for byte.

const (
	firstMark = rune(0xF0000) // Supplementary Private Use Area-A
	lastMark  = rune(0xFFFFD)
	maxTexts  = int(lastMark-firstMark) / 2
)

func openMark(n int) rune  { return firstMark + rune(2*n) }
func closeMark(n int) rune { return firstMark + rune(2*n) + 1 }

// hasMarks reports whether a text contains a character that could be mistaken for a mark.
func hasMarks(s string) bool {
	for i := strings.IndexByte(s, 0xF3); i >= 0 && i < len(s); i++ {
		if s[i] == 0xF3 && i+1 < len(s) && s[i+1] >= 0xB0 {
			return true
		}
	}
	return false
}

// space is put around the stand-in of a text, to observe what the template does with white space at its ends.
const (
	leftSpace  = "\n\v\n"
	rightSpace = "\n\v\n"
	standIn    = leftSpace + "%c" + "x" + "%c" + rightSpace
)

// strip is how a template treats the white space at one end of a text.
type strip uint8

const (
	kept     strip = iota
	newlines       // strip('\n')
	all            // strip()
)

// text is one piece of a message's texts.
type text struct {
	message int
	kind    kind
	s       string
}

// piece is a span of a rendering: written by the template (text < 0), or one of the texts.
type piece struct {
	gap         string
	text        int
	left, right strip
	at, end     int // bytes of the marked rendering, including the mark and the white space around a stand-in
}

// layout is a rendering as pieces. Gaps, which the template wrote, and texts alternate; a gap comes first and last.
type layout struct {
	raw    string
	pieces []piece
}

// readLayout divides a marked rendering into pieces. standIns means that white space was put around every text.
func readLayout(raw string, texts int, standIns bool) (layout, bool) {
	l := layout{raw: raw}
	from := 0
	for i := 0; i < len(raw); {
		if raw[i] != 0xF3 {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(raw[i:])
		if r < firstMark || r > lastMark {
			i += n
			continue
		}
		k := int(r-firstMark) / 2
		closing := closeMark(k)
		length := strings.IndexRune(raw[i+n:], closing)
		if r != openMark(k) || k >= texts || length < 0 || hasMarks(raw[i+n:i+n+length]) {
			return layout{}, false
		}
		p := piece{text: k, at: i, end: i + n + length + utf8.RuneLen(closing)}
		if standIns {
			if raw[i+n:i+n+length] != "x" {
				return layout{}, false
			}
			p.left, p.at = leftOf(raw[from:i], i)
			p.right, p.end = rightOf(raw[p.end:], p.end)
		} else {
			p.gap = raw[i+n : i+n+length] // the text as the template wrote it
		}
		l.pieces = append(l.pieces, piece{gap: raw[from:p.at], text: -1, at: from, end: p.at}, p)
		from, i = p.end, p.end
	}
	l.pieces = append(l.pieces, piece{gap: raw[from:], text: -1, at: from, end: len(raw)})
	for _, p := range l.pieces {
		if standIns && p.text < 0 && strings.ContainsRune(p.gap, '\v') {
			return layout{}, false // the white space of a stand-in was moved
		}
	}
	return l, true
}

func leftOf(before string, at int) (strip, int) {
	switch {
	case strings.HasSuffix(before, leftSpace):
		return kept, at - len(leftSpace)
	case strings.HasSuffix(before, leftSpace[1:]):
		return newlines, at - len(leftSpace) + 1
	}
	return all, at
}

func rightOf(after string, end int) (strip, int) {
	switch {
	case strings.HasPrefix(after, rightSpace):
		return kept, end + len(rightSpace)
	case strings.HasPrefix(after, rightSpace[:len(rightSpace)-1]):
		return newlines, end + len(rightSpace) - 1
	}
	return all, end
}

func stripped(s string, left, right strip) string {
	switch left {
	case newlines:
		s = strings.TrimLeft(s, "\n")
	case all:
		s = strings.TrimLeftFunc(s, isSpace)
	}
	switch right {
	case newlines:
		s = strings.TrimRight(s, "\n")
	case all:
		s = strings.TrimRightFunc(s, isSpace)
	}
	return s
}

// place finds the position of every piece of the layout in the plain rendering; false if they differ in any byte.
// ends[i] is the end of piece i in bytes. If texts is nil, the layout itself contains the rendered texts.
func (l layout) place(plain string, texts []text, ends []int) ([]int, bool) {
	at := 0
	for i := range l.pieces {
		p := &l.pieces[i]
		s := p.gap
		if p.text >= 0 && texts != nil {
			s = stripped(texts[p.text].s, p.left, p.right)
		}
		if !strings.HasPrefix(plain[at:], s) {
			return nil, false
		}
		at += len(s)
		ends = append(ends, at)
	}
	return ends, at == len(plain)
}

// mark is a position in a layout: an offset into a gap, or the end of a text.
type mark struct{ piece, offset int }

// mark converts byte `at` of the marked rendering; false inside a text. A position between a text and a gap belongs to
// the gap.
func (l layout) mark(at int) (mark, bool) {
	for i := 0; i < len(l.pieces); i += 2 {
		p := l.pieces[i]
		if at < p.at {
			return mark{}, false
		}
		if at <= p.end {
			return mark{i, at - p.at}, true
		}
	}
	return mark{}, false
}

// byteOf returns the position of the mark in the plain rendering, given the ends of the pieces.
func (m mark) byteOf(ends []int) int {
	if m.piece == 0 {
		return m.offset
	}
	return ends[m.piece-1] + m.offset
}
