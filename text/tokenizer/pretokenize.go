package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// preTokenizer splits a piece into smaller ones. split returns the piece, rewritten if necessary, and appends its cuts
// to cuts.
type preTokenizer interface {
	split(p piece, cuts []cut) (piece, []cut)
}

// behavior says how a split pattern treats its matches.
type behavior string

const (
	removed            behavior = "Removed"
	isolated           behavior = "Isolated"
	contiguous         behavior = "Contiguous"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
)

// splitBy splits at the matches of a pattern.
type splitBy struct {
	on       matcher
	behavior behavior
	invert   bool // the text between the matches is treated as the matches
}

func (d splitBy) split(p piece, cuts []cut) (piece, []cut) {
	if w, ok := d.on.(words); ok && d.behavior == isolated {
		return p, w.matches(p.s, p.work, cuts) // every byte is in a match, so the matches are the cuts
	}
	found := d.on.matches(p.s, p.work, nil)
	base, last, previous := len(cuts), 0, false
	add := func(c cut, match bool) {
		if c.start == c.end {
			return
		}
		merge := false
		switch d.behavior {
		case removed:
			if match {
				return
			}
		case contiguous:
			merge = match == previous
		case mergedWithPrevious:
			merge = match && !previous
		case mergedWithNext:
			merge = !match && previous
		}
		previous = match
		if merge && len(cuts) > base {
			cuts[len(cuts)-1].end = c.end
			return
		}
		cuts = append(cuts, c)
	}
	for _, m := range found {
		add(cut{last, m.start}, d.invert)
		add(m, !d.invert)
		last = m.end
	}
	add(cut{last, len(p.s)}, d.invert)
	return p, cuts
}

// digits separates number characters from other text, one by one or in runs.
type digits struct {
	class      *[classTableSize]uint8
	individual bool
}

func (d digits) split(p piece, cuts []cut) (piece, []cut) {
	start := 0
	for i := 0; i < len(p.s); {
		c, n := classAt(d.class, p.s, i)
		if c&isNumber == 0 {
			i += n
			continue
		}
		if start < i {
			cuts = append(cuts, cut{start, i})
		}
		end := i + n
		if !d.individual {
			end = run(d.class, p.s, end, isNumber)
		}
		cuts = append(cuts, cut{i, end})
		start, i = end, end
	}
	if start < len(p.s) {
		cuts = append(cuts, cut{start, len(p.s)})
	}
	return p, cuts
}

// byteLevel is the ByteLevel pre-tokenizer: GPT-2's words (optional) and bytes written as characters.
type byteLevel struct {
	prefixSpace bool
	words       wordSplitter // nil = the piece is not split
	rewrite     bool         // write bytes as characters; otherwise the model reads the bytes directly
}

func (b byteLevel) split(p piece, cuts []cut) (piece, []cut) {
	if b.prefixSpace && !strings.HasPrefix(p.s, " ") {
		p = prepend(p, " ")
	}
	base := len(cuts)
	if b.words == nil {
		cuts = append(cuts, cut{0, len(p.s)})
	} else {
		cuts = words{b.words}.matches(p.s, p.work, cuts)
	}
	if !b.rewrite {
		return p, cuts
	}
	raw := p.s
	p = byteLevelText(p)
	// The cuts move with the text: each printable byte below 0x80 stays one byte, the others become two.
	from, to := 0, 0
	for k := base; k < len(cuts); k++ {
		start := to
		for ; from < cuts[k].end; from++ {
			to += len(byteChar[raw[from]])
		}
		cuts[k] = cut{start, to}
	}
	return p, cuts
}

// metaspace writes spaces as a visible character and adds one in front.
type metaspace struct {
	mark  string // the replacement, one character
	when  string // "always", "first" or "never": which pieces get a mark in front
	apart bool   // each mark begins a word
}

func (m metaspace) split(p piece, cuts []cut) (piece, []cut) {
	first := p.first
	p = replaceAll(p, " ", m.mark)
	if !strings.HasPrefix(p.s, m.mark) && (m.when == "always" || m.when == "first" && first) {
		p = prepend(p, m.mark)
	}
	if !m.apart {
		return p, append(cuts, cut{0, len(p.s)})
	}
	return splitBy{literal(m.mark), mergedWithNext, false}.split(p, cuts)
}

// whitespaceWords splits into words (\w+) and runs of other visible characters, without the white space.
func whitespaceWords(s string, out []cut) []cut {
	kind := func(r rune) int {
		switch {
		case isWord(r):
			return 1
		case unicode.IsSpace(r):
			return 0
		}
		return 2
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		k, start := kind(r), i
		for i += n; i < len(s); i += n {
			if r, n = utf8.DecodeRuneInString(s[i:]); kind(r) != k {
				break
			}
		}
		if k != 0 {
			out = append(out, cut{start, i})
		}
	}
	return out
}

// whitespace is the Whitespace pre-tokenizer.
type whitespace struct{}

func (whitespace) split(p piece, cuts []cut) (piece, []cut) { return p, whitespaceWords(p.s, cuts) }
