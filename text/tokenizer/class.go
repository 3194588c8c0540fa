package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// Classes of code points that split patterns distinguish. A code point has one of them or none ("other").
const (
	isLetter  uint8 = 1 << iota // \p{L}
	isNumber                    // \p{N}
	isSpace                     // \s: the White_Space property
	isNewline                   // \r or \n, always with isSpace
	isCapital                   // first part of a word: \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}
	isSmall                     // second part of a word: \p{Ll}\p{Lm}\p{Lo}\p{M}
)

const kindMask = isLetter | isNumber | isSpace

// classTableSize is past the last letter, number and space of Unicode: every code point above is "other", and of them
// only the variation selectors from lastMarks on are marks.
const classTableSize = 0x40000

const lastMarks, lastMarksEnd = 0xE0100, 0xE01EF

// classes returns the class of each code point below classTableSize.
var classes = sync.OnceValue(func() *[classTableSize]uint8 {
	t := new([classTableSize]uint8)
	mark := func(s runeSet, class uint8) {
		for _, r := range s {
			for c := r[0]; c <= min(r[1], classTableSize-1); c++ {
				t[c] |= class
			}
		}
	}
	mark(category("L"), isLetter)
	mark(category("N"), isNumber)
	mark(setOf(unicode.White_Space), isSpace)
	mark(category("Lu"), isCapital)
	mark(category("Lt"), isCapital)
	mark(category("Ll"), isSmall)
	for _, either := range []string{"Lm", "Lo", "M"} {
		mark(category(either), isCapital|isSmall)
	}
	t['\r'] |= isNewline
	t['\n'] |= isNewline
	return t
})

// classAt returns the class and the width of the code point at s[i].
func classAt(t *[classTableSize]uint8, s string, i int) (class uint8, width int) {
	b := s[i]
	if b < utf8.RuneSelf {
		return t[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if r < classTableSize {
		return t[r], n
	}
	if lastMarks <= r && r <= lastMarksEnd {
		return isCapital | isSmall, n
	}
	return 0, n
}

// run returns the end of the run of kind (a letter, number or space class, or 0 for other) that starts at s[i].
func run(t *[classTableSize]uint8, s string, i int, kind uint8) int {
	for i < len(s) {
		b := s[i]
		if b < utf8.RuneSelf {
			if t[b]&kindMask != kind {
				return i
			}
			i++
			continue
		}
		c, n := classAt(t, s, i)
		if c&kindMask != kind {
			return i
		}
		i += n
	}
	return i
}

// isWord reports whether r is matched by \w: letters, marks, decimal digits, connectors and joiners.
func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	return unicode.IsOneOf([]*unicode.RangeTable{unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control}, r) ||
		r >= 0x897 && newWord().has(r)
}

// newWord returns the letters, marks and digits of Unicode 16 that Go's tables lack.
var newWord = sync.OnceValue(func() runeSet {
	var s runeSet
	for n, added := range added16 {
		if n != "P" && n != "S" {
			s = append(s, added...)
		}
	}
	return s.tidy()
})

// isPunctuation reports whether r is ASCII punctuation or has a category of punctuation.
func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return unicode.Is(unicode.P, r) && !olderTables.punctuation.has(r) || r == 0x166D || r == 0x111C9
}
