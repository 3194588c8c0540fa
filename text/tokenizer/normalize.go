package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// normalizer rewrites a piece.
type normalizer interface {
	normalize(p piece) piece
}

type normalizers []normalizer

func (ns normalizers) normalize(p piece) piece {
	for _, n := range ns {
		p.work.spend(len(p.s) + 1)
		p = n.normalize(p)
		p.work.room(len(p.s))
	}
	return p
}

// prependText puts a text before every piece that is not empty.
type prependText string

func (t prependText) normalize(p piece) piece { return prepend(p, string(t)) }

// replaceText replaces every match with content.
type replaceText struct {
	on      matcher
	content string
}

func (t replaceText) normalize(p piece) piece {
	if l, ok := t.on.(literal); ok {
		return replaceAll(p, string(l), t.content)
	}
	found := t.on.matches(p.s, p.work, nil)
	if len(found) == 0 {
		return p
	}
	w, i := newRewriter(p), 0
	for _, m := range found {
		w.keep(i, m.start)
		w.put(t.content, m.end-1)
		i = m.end
	}
	w.keep(i, len(p.s))
	return w.piece()
}

// stripText removes white space at the ends.
type stripText struct{ left, right bool }

func (t stripText) normalize(p piece) piece {
	c := cut{0, len(p.s)}
	if t.left {
		c.start = len(p.s) - len(strings.TrimLeftFunc(p.s, unicode.IsSpace))
	}
	if t.right {
		c.end = max(c.start, len(strings.TrimRightFunc(p.s, unicode.IsSpace)))
	}
	return p.sub(c)
}

// lowercase maps each code point to its lower-case form.
type lowercase struct{}

func (lowercase) normalize(p piece) piece {
	w := newRewriter(p)
	for i, r := range p.s {
		switch l := lower16(r); {
		case r == 'İ': // the only code point whose full mapping has two code points
			w.put("i\u0307", i)
		case l == r:
			w.keep(i, i+utf8.RuneLen(r))
		default:
			w.put(string(l), i)
		}
	}
	return w.piece()
}

// byteLevelNormalizer is the ByteLevel normaliser: it writes bytes as characters and does not split.
type byteLevelNormalizer struct{}

func (byteLevelNormalizer) normalize(p piece) piece { return byteLevelText(p) }
