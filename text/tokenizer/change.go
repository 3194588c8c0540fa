package tokenizer

import "unicode/utf8"

// change is a code point of a new text. by says what it takes of the old one: 0 = one code point, 1 = none, as it was put in behind
// the one before it, -n = one and n more that vanish.
type change struct {
	r  rune
	by int
}

// replaceChange appends a new text for an old one. What is left over of the old one goes to the last code point there is, and
// with none it is left to the code points after it: so does Hugging Face tokenizers, and its offsets follow.
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

// applyChanges writes the new text of p with its alignments.
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
