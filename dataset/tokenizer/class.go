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
)

const kindMask = isLetter | isNumber | isSpace

// classTableSize is past the last letter, number and space of Unicode: every code point above is "other".
const classTableSize = 0x40000

// classes is the class of each code point below classTableSize.
var classes = sync.OnceValue(func() *[classTableSize]uint8 {
	t := new([classTableSize]uint8)
	mark := func(table *unicode.RangeTable, class uint8) {
		for _, r := range table.R16 {
			for c := int(r.Lo); c <= int(r.Hi); c += int(r.Stride) {
				t[c] |= class
			}
		}
		for _, r := range table.R32 {
			for c := int(r.Lo); c <= int(r.Hi) && c < classTableSize; c += int(r.Stride) {
				t[c] |= class
			}
		}
	}
	mark(unicode.L, isLetter)
	mark(unicode.N, isNumber)
	mark(unicode.White_Space, isSpace)
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
	if r >= classTableSize {
		return 0, n
	}
	return t[r], n
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
	return unicode.IsOneOf([]*unicode.RangeTable{unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control}, r)
}

// isPunctuation reports whether r is ASCII punctuation or has a category of punctuation.
func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return unicode.Is(unicode.P, r)
}
