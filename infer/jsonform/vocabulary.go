package jsonform

import (
	"math"
	"slices"
)

// Vocabulary is a prefix tree of the bytes of all tokens: tokens with a common prefix share the walk.
type Vocabulary struct {
	nodes   []branch
	ids     []int32 // token ids of the nodes, in the order of nodes
	bytes   [][]byte
	plain   []int32 // tokens that are plain text as a whole, ascending: logits are copied fastest in this order
	longest int     // longest token in bytes
}

// branch is a node of the tree, in depth-first order.
type branch struct {
	c          byte
	plain      bool // in a string, at the end of a character, every token below can follow and stays within the string
	whole      bool // all tokens that end here and below are in Vocabulary.plain
	depth      uint16
	skip       int32 // number of nodes from here to the first one after the subtree
	first, end int32 // range of Vocabulary.ids: tokens that end here
	below      int32 // end of the range of Vocabulary.ids: tokens that end here or below
}

// maxToken is the longest token, in bytes, that the tree holds. JSON needs no longer ones.
const maxToken = 256

// NewVocabulary builds a Vocabulary of the bytes that each token appends to a text. A token with nil is left out.
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
	var path []int32 // nodes above the present one
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

// markPlain finds the nodes below which all tokens are plain text, so that Mask need not walk them inside a string. It
// reads a token as string content from its first byte on, and starts again after each ASCII byte that cannot be string
// content, such as a quote.
func (v *Vocabulary) markPlain() {
	var path [maxToken + 1]state // positions of the text that a token writes by itself
	path[0] = state{mode: mString}
	reads := make([]bool, len(v.nodes))
	ended := make([]bool, len(v.nodes)) // whether a character has ended at the node
	for i := range v.nodes {
		n := &v.nodes[i]
		at := path[n.depth]
		reads[i] = at.mode == mString && at.next(n.c) && at.mode == mString
		if ended[i] = reads[i] && at.more == 0; !reads[i] {
			at = state{mode: mDone} // broken UTF-8
			if n.c < 0x80 {
				at, ended[i] = path[0], true
			}
		}
		path[n.depth+1] = at
	}
	above := make([]int32, 0, maxToken)
	all := slices.Repeat([]bool{true}, len(v.nodes)) // whether everything below the node is plain
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

// Mask returns the logits with minus infinity for all tokens that cannot follow. It writes to scratch if that is large
// enough.
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
				last = n.first // already copied
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

// Allowed reports whether a token can follow.
func (v *Vocabulary) Allowed(a Acceptor, id int32) bool {
	return v.Take(&a, id)
}

// Take advances a by a token and reports whether the token can follow.
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

// Form is a schema with the vocabulary that writes it.
type Form struct {
	*Schema
	*Vocabulary
}
