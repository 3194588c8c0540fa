package jsonform

import (
	"math"
	"slices"
)

// Vocabulary is the bytes of all tokens, as a tree: tokens that begin alike are walked once.
type Vocabulary struct {
	nodes   []branch
	ids     []int32 // of the nodes, one after the other
	bytes   [][]byte
	plain   []int32 // tokens that are plain text as a whole, ascending: in this order logits are copied fastest
	longest int     // bytes of a token
}

// branch is a node of the tree, in the order in which it is walked.
type branch struct {
	c          byte
	plain      bool // within a text, at the end of a character, all that is below can follow and stays within it
	whole      bool // what ends here and below is in Vocabulary.plain
	depth      uint16
	skip       int32 // nodes from here to the one behind all below
	first, end int32 // of ids: tokens that end here
	below      int32 // of ids: behind the tokens that end here or below
}

// maxToken is the most bytes of a token that takes part; longer ones are none that JSON needs.
const maxToken = 256

// NewVocabulary takes the bytes that each token adds to a text; nil = the token takes no part.
func NewVocabulary(tokens [][]byte) *Vocabulary {
	v := &Vocabulary{bytes: tokens}
	order := make([]int32, 0, len(tokens))
	for id, b := range tokens {
		if len(b) > 0 && len(b) <= maxToken {
			order = append(order, int32(id))
			v.longest = max(v.longest, len(b))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return slices.Compare(tokens[a], tokens[b]) })
	var path []int32 // nodes above
	var before []byte
	pop := func(depth int) {
		for len(path) > depth {
			n := &v.nodes[path[len(path)-1]]
			n.skip, n.below = int32(len(v.nodes))-path[len(path)-1], int32(len(v.ids))
			path = path[:len(path)-1]
		}
	}
	for _, id := range order {
		b := tokens[id]
		same := 0
		for same < len(b) && same < len(before) && b[same] == before[same] {
			same++
		}
		pop(same)
		for ; same < len(b); same++ {
			n := int32(len(v.ids))
			path = append(path, int32(len(v.nodes)))
			v.nodes = append(v.nodes, branch{c: b[same], depth: uint16(same), first: n, end: n})
		}
		v.ids = append(v.ids, id)
		v.nodes[path[len(path)-1]].end = int32(len(v.ids))
		before = b
	}
	pop(0)
	v.markPlain()
	return v
}

// markPlain finds the nodes below which all tokens are plain text, so that within a text they need not be walked. A
// token is read as a text from its first byte on, and anew behind each ASCII byte that can't be one's, such as a quote.
func (v *Vocabulary) markPlain() {
	var path [maxToken + 1]state // of a text that each token by itself is in
	path[0] = state{mode: mString}
	reads := make([]bool, len(v.nodes))
	ended := make([]bool, len(v.nodes)) // a character has
	for i := range v.nodes {
		n := &v.nodes[i]
		at := path[n.depth]
		reads[i] = at.mode == mString && at.next(n.c) && at.mode == mString
		if ended[i] = reads[i] && at.more == 0; !reads[i] {
			at = state{mode: mDone} // of broken UTF-8
			if n.c < 0x80 {
				at, ended[i] = path[0], true
			}
		}
		path[n.depth+1] = at
	}
	above := make([]int32, 0, maxToken)
	all := slices.Repeat([]bool{true}, len(v.nodes)) // of what is below
	for i := range v.nodes {
		n := &v.nodes[i]
		if above = above[:n.depth]; !reads[i] {
			for _, up := range above {
				all[up] = false
			}
		}
		above = append(above, int32(i))
	}
	for i := range v.nodes {
		v.nodes[i].plain = all[i] && ended[i]
	}
	for i := int32(0); int(i) < len(v.nodes); {
		n := &v.nodes[i]
		if reads[i] && !n.plain {
			i++
			continue
		}
		if n.whole = reads[i]; n.whole {
			v.plain = append(v.plain, v.ids[n.first:n.below]...)
		}
		i += n.skip
	}
	slices.Sort(v.plain)
}

var none = float32(math.Inf(-1))

// Mask is the logits with minus infinity for all tokens that can't follow, in scratch where that is large enough.
func (v *Vocabulary) Mask(a Acceptor, logits, scratch []float32) []float32 {
	out := slices.Grow(scratch[:0], len(logits))[:len(logits)]
	for i := range out {
		out[i] = none
	}
	text := a.takesText(v.longest)
	if text {
		for _, id := range v.plain {
			if int(id) < len(logits) {
				out[id] = logits[id]
			}
		}
	}
	var path [maxToken + 1]Acceptor
	path[0] = a
	for i := 0; i < len(v.nodes); {
		n := &v.nodes[i]
		at := &path[n.depth+1]
		if !at.after(&path[n.depth], n.c) {
			i += int(n.skip)
			continue
		}
		last, step := n.end, 1
		if n.plain && at.takesText(v.longest) {
			if last, step = n.below, int(n.skip); text && n.whole {
				last = n.first // copied already
			}
		}
		for _, id := range v.ids[n.first:last] {
			if int(id) < len(logits) {
				out[id] = logits[id]
			}
		}
		i += step
	}
	return out
}

// Allowed tells whether one token can follow.
func (v *Vocabulary) Allowed(a Acceptor, id int32) bool {
	return v.Take(&a, id)
}

// Take follows a token and tells whether it can.
func (v *Vocabulary) Take(a *Acceptor, id int32) bool {
	if int(id) >= len(v.bytes) || len(v.bytes[id]) == 0 || len(v.bytes[id]) > maxToken {
		return false
	}
	for _, c := range v.bytes[id] {
		if !a.Next(c) {
			return false
		}
	}
	return true
}

// Form is a schema and the tokens that write it.
type Form struct {
	*Schema
	*Vocabulary
}
