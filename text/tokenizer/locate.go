package tokenizer

import "unicode/utf8"

// LocateOptions says what Locate looks for. Positions are bytes of the text; ranges are half-open and ascend.
type LocateOptions struct {
	Borders []int          // ascending, each where a code point begins or the text ends
	Plain   [][2]int       // special tokens that touch these ranges are not matched but read as the text they are
	Allow   map[int32]bool // special tokens that are matched in Plain too
}

// Border is where a byte of a text lies among its tokens: those before Token end at or before it.
type Border struct {
	Token  int
	Across bool // Token itself begins before the byte: it lies across
}

// Special is a special token that was matched in a text.
type Special struct {
	ID         int32
	Start, End int // bytes
}

// Located is a text as ids, with the places that were asked for.
type Located struct {
	IDs      []int32
	Borders  []Border // for each of LocateOptions.Borders
	Specials []Special
	Plain    int // matches in LocateOptions.Plain that were read as text
}

// Locate returns the ids that IDs(text, false) returns, but for the special tokens in o.Plain, and where the borders lie
// among them. It takes hardly longer than IDs where the tokenizer leaves the text around a border as it is. The text
// must be valid UTF-8.
//
// A special token in o.Plain is passed over as with split_special_tokens (encode_special_tokens) of Hugging Face's
// tokenizers, where that stands for the whole text.
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

// rewrites reports whether the tokenizer changes the plainest text before its model sees it, as sentencepiece's do: then
// places are known from alignments alone.
func (t *Tokenizer) rewrites() bool {
	t.rewriting.Do(func() {
		l := &locating{o: LocateOptions{Borders: []int{1}}}
		t.encode("a b", false, &output{located: l})
		t.rewritten = l.lost
	})
	return t.rewritten
}

// IsSpecial reports whether the id is a special token's.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// locating is the state of one Locate.
type locating struct {
	o       LocateOptions
	aligned bool // every piece carries its alignment
	lost    bool // a place is not known without it
	plain   int  // of o.Plain: those before end before the text at hand
	result  Located
}

// bytesOf is where bytes [start,end) of p lie in the text.
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

// add notes the borders that lie before the end of these tokens, the first of which has the given index.
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

// isPlain reports whether an added token that was found in p is to be read as text, and notes it if not.
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
