package tokenizer

import "unicode/utf8"

// LocateOptions sets what Locate searches for. Positions are bytes of the text; ranges are half-open and ascend.
type LocateOptions struct {
	Borders []int          // ascending positions, each at the start of a code point or the end of the text
	Plain   [][2]int       // special tokens that overlap these ranges are read as plain text
	Allow   map[int32]bool // special tokens that are matched even in Plain
}

// Border is the position of a byte of a text among its tokens: the tokens before Token end at or before it.
type Border struct {
	Token  int
	Across bool // Token itself begins before the byte, so it straddles the border
}

// Special is a special token that was matched in a text.
type Special struct {
	ID         int32
	Start, End int // bytes
}

// Located has the ids of a text, with the requested positions.
type Located struct {
	IDs      []int32
	Borders  []Border // one for each of LocateOptions.Borders
	Specials []Special
	Plain    int // matches in LocateOptions.Plain that were read as text
}

// Locate returns the ids that IDs(text, false) returns, except for the special tokens in o.Plain, and the positions of
// the borders among them. It is hardly slower than IDs if the tokenizer leaves the text around a border unchanged. The
// text must be valid UTF-8.
//
// Within o.Plain it treats special tokens as split_special_tokens (encode_special_tokens) of Hugging Face's tokenizers
// treats those of a whole text: it reads them as plain text.
func (t *Tokenizer) Locate(text string, o LocateOptions) Located {
	aligned := t.needAlign || len(o.Plain) > 0 || len(o.Borders) > 0 && t.rewrites()
	for {
		l := &locating{o: o, aligned: aligned}
		out := output{ids: make([]int32, 0, len(text)/3+4), located: l}
		t.encode(text, false, &out)
		if l.lost && !aligned {
			aligned = true
			continue
		}
		for len(l.result.Borders) < len(o.Borders) {
			l.result.Borders = append(l.result.Borders, Border{Token: len(out.ids)})
		}
		l.result.IDs = out.ids
		return l.result
	}
}

// rewrites reports whether the tokenizer changes even plain text before its model sees it, as sentencepiece's do.
// Positions then follow only from alignments.
func (t *Tokenizer) rewrites() bool {
	t.rewriting.Do(func() {
		l := &locating{o: LocateOptions{Borders: []int{1}}}
		t.encode("a b", false, &output{located: l})
		t.rewritten = l.lost
	})
	return t.rewritten
}

// IsSpecial reports whether an id belongs to a special token.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// locating is the state of one call of Locate.
type locating struct {
	o       LocateOptions
	aligned bool // every piece carries its alignment
	lost    bool // a position cannot be determined without alignments
	plain   int  // number of ranges of o.Plain that end before the current text
	result  Located
}

// bytesOf returns the position of bytes [start,end) of p in the text.
func (l *locating) bytesOf(p piece, start, end int) (from, to int) {
	switch {
	case p.at != nil:
		start = min(start, len(p.at)-1)
		end = max(min(end, len(p.at)), start+1)
		return int(p.at[start].start), int(p.at[end-1].end)
	case p.from > 0:
		return p.from - 1 + start, p.from - 1 + end
	}
	l.lost = true
	return 0, 0
}

// add records the borders before the end of these tokens; index is the index of the first one.
func (l *locating) add(index int, p piece, start int, tokens []token) {
	k := len(l.result.Borders)
	if k == len(l.o.Borders) || len(tokens) == 0 {
		return
	}
	if p.at == nil && p.from > 0 && p.from-1+start+int(tokens[len(tokens)-1].end) <= l.o.Borders[k] {
		return
	}
	begin := start
	for i, t := range tokens {
		from, to := l.bytesOf(p, begin, start+int(t.end))
		for k < len(l.o.Borders) && to > l.o.Borders[k] {
			l.result.Borders = append(l.result.Borders, Border{index + i, from < l.o.Borders[k]})
			k++
		}
		begin = start + int(t.end)
	}
}

// isPlain reports whether an added token that was found in p must be read as text, and records it if not.
func (l *locating) isPlain(a found, p piece) bool {
	if !a.token.Special {
		return false
	}
	from, to := l.bytesOf(p, a.core.start, a.core.end)
	if !l.o.Allow[a.token.ID] {
		for l.plain < len(l.o.Plain) && l.o.Plain[l.plain][1] <= from {
			l.plain++
		}
		if l.plain < len(l.o.Plain) && l.o.Plain[l.plain][0] < to {
			l.result.Plain++
			return true
		}
	}
	l.result.Specials = append(l.result.Specials, Special{a.token.ID, from, to})
	return false
}

// byteAlignments maps each byte of s to the bytes of its code point.
func byteAlignments(s string) []span {
	at := make([]span, len(s))
	for i, r := range s {
		n := utf8.RuneLen(r)
		for k := range n {
			at[i+k] = span{int32(i), int32(i + n)}
		}
	}
	return at
}
