package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// mapRunes rewrites each code point separately; to returns its new text and whether that differs.
func mapRunes(p piece, to func(r rune) (string, bool)) piece {
	first := -1
	for i, r := range p.s {
		if _, differs := to(r); differs {
			first = i
			break
		}
	}
	if first < 0 {
		return p
	}
	w := newRewriter(p)
	w.keep(0, first)
	for i, r := range p.s[first:] {
		i += first
		if s, differs := to(r); differs {
			w.put(s, i)
		} else {
			w.keep(i, i+utf8.RuneLen(r))
		}
	}
	return w.piece()
}

// dropRunes removes the code points for which drop is true.
func dropRunes(p piece, drop func(rune) bool) piece {
	return mapRunes(p, func(r rune) (string, bool) { return "", drop(r) })
}

// stripAccents is the StripAccents normaliser.
type stripAccents struct{}

func (stripAccents) normalize(p piece) piece { return dropRunes(p, isMark) }

func isMark(r rune) bool {
	return r >= 0x300 && (unicode.Is(unicode.M, r) && !olderTables.marks.has(r) || r == 0x1CF2 || r == 0x1CF3)
}

func isNonspacingMark(r rune) bool {
	return r >= 0x300 && (unicode.Is(unicode.Mn, r) && !olderTables.nonspacing.has(r) || r == 0x1734)
}

// bertNormalizer is BERT's normaliser.
type bertNormalizer struct{ clean, chinese, accents, lower bool }

func (b bertNormalizer) normalize(p piece) piece {
	if b.clean {
		p = dropRunes(p, func(r rune) bool {
			return r == 0 || r == utf8.RuneError || isOther(r) && r != '\t' && r != '\n' && r != '\r'
		})
		p = mapRunes(p, func(r rune) (string, bool) { return " ", r != ' ' && unicode.IsSpace(r) })
	}
	if b.chinese && strings.ContainsFunc(p.s, isIdeograph) {
		w := newRewriter(p)
		for i, r := range p.s {
			n := utf8.RuneLen(r)
			if !isIdeograph(r) {
				w.keep(i, i+n)
				continue
			}
			w.put(" ", i)
			w.keep(i, i+n)
			w.put(" ", i)
		}
		p = w.piece()
	}
	if b.accents {
		p = dropRunes(forms["NFD"].normalize(p), isNonspacingMark)
	}
	if b.lower {
		p = lowercase{}.normalize(p)
	}
	return p
}

// isOther reports whether r is a control, a format character or of private use.
func isOther(r rune) bool {
	// Added to Unicode after the reference's tables.
	if r == 0x890 || r == 0x891 || r == 0x8E2 || r == 0x110CD || 0x13430 <= r && r <= 0x1343F {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}

// isIdeograph reports whether r is in one of the blocks that BERT splits character by character.
func isIdeograph(r rune) bool {
	return r >= 0x3400 && (r <= 0x4DBF || 0x4E00 <= r && r <= 0x9FFF || 0xF900 <= r && r <= 0xFAFF || 0x20000 <= r && r <= 0x2A6DF ||
		0x2A700 <= r && r <= 0x2B81F || 0x2B920 <= r && r <= 0x2CEAF || 0x2F800 <= r && r <= 0x2FA1F)
}

// nmt is the Nmt normaliser of SentencePiece: it removes control characters and replaces each kind of space with a
// plain space.
type nmt struct{}

func (nmt) normalize(p piece) piece {
	p = dropRunes(p, func(r rune) bool {
		return 0x01 <= r && r <= 0x08 || r == 0x0B || 0x0E <= r && r <= 0x1F || r == 0x7F || r == 0x8F || r == 0x9F
	})
	return mapRunes(p, func(r rune) (string, bool) {
		switch r {
		case '\t', '\n', '\f', '\r', 0x1680, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD:
			return " ", true
		}
		return "", false
	})
}

// bertWords is BERT's pre-tokenizer: it splits at white space and removes it; each punctuation character is a word.
type bertWords struct{}

func (bertWords) split(p piece, cuts []cut) (piece, []cut) {
	start := 0
	for i, r := range p.s {
		space := unicode.IsSpace(r)
		if !space && !isPunctuation(r) {
			continue
		}
		if start < i {
			cuts = append(cuts, cut{start, i})
		}
		start = i + utf8.RuneLen(r)
		if !space {
			cuts = append(cuts, cut{i, start})
		}
	}
	if start < len(p.s) {
		cuts = append(cuts, cut{start, len(p.s)})
	}
	return p, cuts
}

// fixedLength splits into pieces of that many code points.
type fixedLength int

func (n fixedLength) split(p piece, cuts []cut) (piece, []cut) {
	start, count := 0, 0
	for i := range p.s {
		if count == int(n) {
			cuts = append(cuts, cut{start, i})
			start, count = i, 0
		}
		count++
	}
	return p, append(cuts, cut{start, len(p.s)})
}
