package tokenizer

import (
	"math"
	"strings"
	"unicode/utf8"
)

// span is a half-open range of code points of the original text.
type span struct{ start, end int32 }

// cut is a half-open byte range of a piece.
type cut struct{ start, end int }

// piece is a part of a text in the pipeline.
type piece struct {
	s     string
	at    []span // for each byte of s, the code points it came from; nil if offsets are not computed
	first bool   // s begins at the beginning of the original text
	from  int    // 1 + the offset in the original text at which s begins unchanged; 0 if s was rewritten
	work  *work  // remaining budget of the text
}

// sub returns the part of p in c.
func (p piece) sub(c cut) piece {
	q := piece{s: p.s[c.start:c.end], first: p.first && c.start == 0, work: p.work}
	if p.from > 0 {
		q.from = p.from + c.start
	}
	if p.at != nil {
		q.at = p.at[c.start:c.end]
		q.first = len(q.at) > 0 && q.at[0].start == 0
	}
	return q
}

// alignments maps each byte of s to its own code point; the first code point has index from.
func alignments(s string, from int32) []span {
	at := make([]span, len(s))
	k := from - 1
	for i := 0; i < len(s); i++ {
		if utf8.RuneStart(s[i]) {
			k++
		}
		at[i] = span{k, k + 1}
	}
	return at
}

// rewriter builds the next form of a piece together with its alignments.
type rewriter struct {
	from piece
	b    strings.Builder
	at   []span
}

func newRewriter(p piece) *rewriter {
	w := &rewriter{from: p}
	w.b.Grow(len(p.s) + len(p.s)/8 + 8)
	if p.at != nil {
		w.at = make([]span, 0, len(p.s)+8)
	}
	return w
}

// keep copies bytes [i,j) of the source with their alignments.
func (w *rewriter) keep(i, j int) {
	w.from.work.room(w.b.Len() + j - i)
	w.b.WriteString(w.from.s[i:j])
	if w.from.at != nil {
		w.at = append(w.at, w.from.at[i:j]...)
	}
}

// put writes s aligned with byte i of the source (without alignment if i is outside it).
func (w *rewriter) put(s string, i int) {
	w.from.work.room(w.b.Len() + len(s))
	w.b.WriteString(s)
	if w.from.at == nil {
		return
	}
	var a span
	if i >= 0 && i < len(w.from.at) {
		a = w.from.at[i]
	}
	for range len(s) {
		w.at = append(w.at, a)
	}
}

func (w *rewriter) piece() piece {
	return piece{s: w.b.String(), at: w.at, first: w.from.first, work: w.from.work}
}

// prepend inserts prefix before p; the prefix shares the alignment of p's first character.
func prepend(p piece, prefix string) piece {
	if p.s == "" {
		return p
	}
	p.work.spend(len(p.s) / 4)
	p.work.room(len(prefix) + len(p.s))
	if p.at == nil {
		return piece{s: prefix + p.s, first: p.first, work: p.work}
	}
	w := newRewriter(p)
	w.put(prefix, 0)
	w.keep(0, len(p.s))
	return w.piece()
}

// replaceAll replaces every from with to; to shares the alignment of the last byte it replaces.
func replaceAll(p piece, from, to string) piece {
	if from == "" || !strings.Contains(p.s, from) {
		return p
	}
	if n := strings.Count(p.s, from); len(to) > len(from) && len(p.s) < math.MaxInt/(len(to)+1) {
		p.work.room(len(p.s) + n*(len(to)-len(from)))
	}
	if p.at == nil {
		return piece{s: strings.ReplaceAll(p.s, from, to), first: p.first, work: p.work}
	}
	w := newRewriter(p)
	i := 0
	for {
		k := strings.Index(p.s[i:], from)
		if k < 0 {
			break
		}
		w.keep(i, i+k)
		i += k + len(from)
		w.put(to, i-1)
	}
	w.keep(i, len(p.s))
	return w.piece()
}
