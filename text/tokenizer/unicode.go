package tokenizer

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm is one of the four Unicode normalisation forms (UAX #15). x/text reports whether a text is in the form
// already and has the tables; the rest is implemented here because x/text keeps no alignments and breaks runs of more
// than 30 marks.
type unicodeForm struct {
	quick     norm.Form // detects text in the form
	decompose norm.Form // NFD or NFKD
	compose   bool
}

// glyph is a decomposed code point: mark class, bytes and alignment. shift is the number of code points of the source
// that it represents, minus one: +1 for one that was split off, -1 for each one that was merged.
type glyph struct {
	r     rune
	class uint8
	shift int
}

func (f unicodeForm) normalize(p piece) piece {
	if f.quick.IsNormalString(p.s) {
		return p
	}
	w := newRewriter(p)
	src := 0 // number of consumed bytes of the source
	var buf []glyph
	flush := func() {
		if f.compose {
			buf = composeGlyphs(buf)
		}
		for _, g := range buf {
			// A code point that was split off consumes no source and shares the last alignment.
			at := src
			if g.shift > 0 {
				at = src - 1
			}
			w.put(string(g.r), at)
			for n := g.shift; n <= 0 && src < len(p.s); n++ {
				_, width := utf8.DecodeRuneInString(p.s[src:])
				src += width
			}
		}
		buf = buf[:0]
	}
	for _, r := range p.s {
		if r >= 0x32FF && undecomposed.has(r) {
			if len(buf) > 0 {
				flush()
			}
			buf = append(buf, glyph{r, 0, 0})
			continue
		}
		if r < 0xC0 && (f.decompose == norm.NFD || r < 0xA0) { // below it, no code point decomposes
			if len(buf) > 0 {
				flush()
			}
			buf = append(buf, glyph{r, 0, 0})
			continue
		}
		shift := 0
		for _, d := range f.decompose.String(string(r)) {
			info := norm.NFC.PropertiesString(string(d))
			g := glyph{d, info.CCC(), shift}
			shift = 1
			if g.class != 0 {
				buf = insertMark(buf, g)
				continue
			}
			// A starter may still merge with the one before it (Hangul, some Indic vowels).
			if len(buf) > 0 && !(f.compose && !info.BoundaryBefore() && merges(buf, d)) {
				flush()
			}
			buf = append(buf, g)
		}
	}
	flush()
	return w.piece()
}

// insertMark inserts g after all glyphs of its own or a smaller class.
func insertMark(buf []glyph, g glyph) []glyph {
	k := len(buf)
	for k > 0 && buf[k-1].class > g.class {
		k--
	}
	buf = append(buf, glyph{})
	copy(buf[k+1:], buf[k:])
	buf[k] = g
	return buf
}

// merges reports whether the starter r composes with the starter at the end of buf once its marks are in.
func merges(buf []glyph, r rune) bool {
	c := composeGlyphs(append([]glyph(nil), buf...))
	if last := c[len(c)-1]; last.class == 0 {
		_, ok := pair(last.r, r)
		return ok
	}
	return false
}

// composeGlyphs merges each glyph into the last starter if it is not blocked (UAX #15, D117).
func composeGlyphs(buf []glyph) []glyph {
	out := buf[:0]
	starter, lastClass := -1, -1 // lastClass: the class of the last glyph kept after the starter, -1 for none
	for _, g := range buf {
		if starter >= 0 && lastClass < int(g.class) {
			if r, ok := pair(out[starter].r, g.r); ok {
				out[starter].r = r
				out[starter].shift += g.shift - 1
				continue
			}
		}
		if g.class == 0 {
			starter, lastClass = len(out), -1
		} else {
			lastClass = int(g.class)
		}
		out = append(out, g)
	}
	return out
}

// pair returns the primary composite of a and b.
func pair(a, b rune) (rune, bool) {
	if b < 0x300 { // the smallest code point that composes with one before it
		return 0, false
	}
	var s strings.Builder
	s.WriteRune(a)
	s.WriteRune(b)
	c, n := utf8.DecodeRuneInString(norm.NFC.String(s.String()))
	if n == 0 || c == a {
		return 0, false
	}
	if rest := norm.NFC.String(s.String())[n:]; rest != "" {
		return 0, false
	}
	return c, true
}
