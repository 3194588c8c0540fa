package tokenizer

import (
	"strings"
	"unicode"
)

// postProcessor adds special tokens around a text and trims offsets.
type postProcessor struct {
	before, after []int32
	trims         []trimOffsets // one for each ByteLevel post-processor that trims
}

// trimOffsets excludes the white space at the ends of a token from its offsets.
type trimOffsets struct{ prefixSpace bool }

func (pp *postProcessor) finish(t *Tokenizer, out output, addSpecial bool) Encoding {
	for _, trim := range pp.trims {
		trim.apply(t, out)
	}
	if !addSpecial || len(pp.before)+len(pp.after) == 0 {
		return Encoding{IDs: out.ids, Offsets: out.offsets}
	}
	n := len(pp.before) + len(out.ids) + len(pp.after)
	e := Encoding{IDs: make([]int32, 0, n), Offsets: make([][2]int, len(pp.before), n)}
	e.IDs = append(append(append(e.IDs, pp.before...), out.ids...), pp.after...)
	e.Offsets = append(append(e.Offsets, out.offsets...), make([][2]int, len(pp.after))...)
	return e
}

func (trim trimOffsets) apply(t *Tokenizer, out output) {
	blank := func(r rune) bool { return r == 'Ġ' || unicode.IsSpace(r) }
	for i, id := range out.ids {
		s, ok := out.matched[i]
		if !ok {
			s, _ = t.Token(id)
		}
		left := strings.TrimLeftFunc(s, blank)
		leading := len([]rune(s)) - len([]rune(left))
		trailing := len([]rune(s)) - len([]rune(strings.TrimRightFunc(s, blank)))
		o := &out.offsets[i]
		if leading > 0 {
			if (i == 0 || o[0] == 0) && trim.prefixSpace && leading == 1 {
				leading = 0 // the space that the pre-tokenizer added
			}
			o[0] = min(o[0]+leading, o[1])
		}
		if trailing > 0 && o[1] >= trailing {
			o[1] = max(o[1]-trailing, o[0])
		}
	}
}
