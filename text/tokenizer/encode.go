package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Encoding has the tokens of a text.
type Encoding struct {
	IDs     []int32  // [T]
	Tokens  []string // [T] in the vocabulary's spelling
	Offsets [][2]int // [T] half-open ranges of code points of the text; 0,0 for a token that the post-processor added
}

// output collects the tokens of one call.
type output struct {
	ids     []int32
	offsets [][2]int
	// Text of each added token by its index, including white space that it absorbed; only with offsets.
	matched map[int]string
	located *locating // nil = only ids, or ids and offsets, are computed
}

// add appends tokens whose text begins at byte start of p.
func (o *output) add(p piece, start int, tokens []token) {
	if o.located != nil {
		o.located.add(len(o.ids), p, start, tokens)
	}
	if p.at == nil || o.located != nil {
		for i := range tokens {
			o.ids = append(o.ids, tokens[i].id)
		}
		return
	}
	from := start
	for _, t := range tokens {
		o.ids = append(o.ids, t.id)
		// The bytes of a suffix that became byte tokens are not bytes of p.
		from = min(from, len(p.at)-1)
		end := min(start+int(t.end), len(p.at))
		o.offsets = append(o.offsets, [2]int{int(p.at[from].start), int(p.at[end-1].end)})
		from = end
	}
}

// Encode returns the tokens of text with their offsets. With addSpecial the post-processor adds its special tokens.
// Special tokens in the text are recognised in both cases. Invalid UTF-8 is read as U+FFFD, one for each wrong byte.
func (t *Tokenizer) Encode(text string, addSpecial bool) Encoding {
	var out output
	out.offsets = make([][2]int, 0, len(text)/4+4)
	t.encode(text, true, &out)
	e := t.post.finish(t, out, addSpecial)
	e.Tokens = make([]string, len(e.IDs))
	for i, id := range e.IDs {
		e.Tokens[i], _ = t.Token(id)
	}
	return e
}

// IDs returns the ids that Encode returns, faster.
func (t *Tokenizer) IDs(text string, addSpecial bool) []int32 {
	var out output
	out.ids = make([]int32, 0, len(text)/3+len(t.post.before)+len(t.post.after)+4)
	if addSpecial {
		out.ids = append(out.ids, t.post.before...)
	}
	t.encode(text, t.needAlign, &out)
	if addSpecial {
		out.ids = append(out.ids, t.post.after...)
	}
	return out.ids
}

func (t *Tokenizer) encode(text string, align bool, out *output) {
	if !utf8.ValidString(text) {
		text = replaceInvalid(text)
	}
	sc := t.scratch.Get().(*scratch)
	p := piece{s: text, first: true, from: 1, work: newWork(len(text))}
	sc.work = p.work
	switch {
	case align:
		p.at = alignments(text, 0)
	case out.located != nil && out.located.aligned:
		p.at = byteAlignments(text)
	}
	t.extract(t.found, p, sc, out, func(p piece) {
		p = t.normalizers.normalize(p)
		t.extract(t.foundNormal, p, sc, out, func(p piece) { t.pretokenize(0, p, sc, out) })
	})
	t.scratch.Put(sc)
}

// extract passes the added tokens in p to out and the text between them to rest.
func (t *Tokenizer) extract(f *finder, p piece, sc *scratch, out *output, rest func(piece)) {
	done := 0
	if f != nil {
		for from := 0; from < len(p.s); {
			a := f.next(p.s, from, done, p.work)
			if a.token == nil {
				break
			}
			if out.located != nil && out.located.isPlain(a, p) {
				from = a.core.end
				continue
			}
			start, end := a.start, a.end
			if done < start {
				rest(p.sub(cut{done, start}))
			}
			sc.tokens = append(sc.tokens[:0], wholeToken(a.token.ID, end-start))
			if p.at != nil && out.located == nil {
				if out.matched == nil {
					out.matched = map[int]string{}
				}
				out.matched[len(out.ids)] = p.s[start:end]
			}
			out.add(p, start, sc.tokens)
			done, from = end, a.core.end
		}
	}
	if done < len(p.s) {
		rest(p.sub(cut{done, len(p.s)}))
	}
}

func wholeToken(id int32, size int) token { return token{id, int32(size)} }

// pretokenize runs the pre-tokenizers from step on over p, and the model over the resulting pieces.
func (t *Tokenizer) pretokenize(step int, p piece, sc *scratch, out *output) {
	if step == len(t.preTokenizers) {
		t.model.tokenize(p, sc, out)
		return
	}
	p.work.spend(len(p.s) + 1)
	p.work.room(len(p.s))
	base := len(sc.cuts)
	p, sc.cuts = t.preTokenizers[step].split(p, sc.cuts)
	for k, end := base, len(sc.cuts); k < end; k++ {
		if c := sc.cuts[k]; c.start < c.end {
			t.pretokenize(step+1, p.sub(c), sc, out)
		}
	}
	sc.cuts = sc.cuts[:base]
}

// replaceInvalid replaces every byte that is not part of a code point with U+FFFD.
func replaceInvalid(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 16)
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}
