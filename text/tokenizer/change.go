package tokenizer

import "unicode/utf8"

// change is a code point of a new text. by says how many code points of the old text it replaces: 0 = one; 1 = none,
// because it was inserted after the one before it; -n = n+1, and it removes n of them.
type change struct {
	r  rune
	by int
}

// replaceChange appends the changes that replace the text old with new. Surplus code points of old belong to the last
// code point of new, or, if new is empty, to the code points after it. Hugging Face tokenizers does the same, and its
// offsets follow from it.
func replaceChange(done []change, old, new string) []change {
	n, m := utf8.RuneCountInString(old), 0
	for _, r := range new {
		done = append(done, change{r, 0})
		m++
	}
	switch {
	case m > n:
		for k := range m - n {
			done[len(done)-1-k].by = 1
		}
	case m < n && len(done) > 0:
		done[len(done)-1].by += m - n
	}
	return done
}

// applyChanges returns the new text of p with its alignments.
func applyChanges(p piece, done []change) piece {
	w := newRewriter(p)
	at := 0
	take := func(n int) {
		for ; n > 0 && at < len(p.s); n-- {
			_, width := utf8.DecodeRuneInString(p.s[at:])
			at += width
		}
	}
	for _, c := range done {
		if c.by > 0 {
			w.put(string(c.r), at-1)
			continue
		}
		w.put(string(c.r), at)
		take(1 - c.by)
	}
	return w.piece()
}
