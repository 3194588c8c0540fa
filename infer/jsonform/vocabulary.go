package jsonform

import (
	"bytes"
	"math"
	"slices"
)

// Vocabulary is the bytes of all tokens, as a tree: tokens that begin alike are walked once.
type Vocabulary struct {
	nodes []branch
	ids   []int32 // of the nodes, one after the other
	bytes [][]byte
	// Within a text most tokens fit wherever that is: plain are those that do, quotes those that may end it.
	plain, quotes []int32
}

// branch is a node of the tree, in the order in which it is walked.
type branch struct {
	c          byte
	depth      uint16
	skip       int32 // nodes from here to the one behind all below
	first, end int32 // of ids: tokens that end here
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
			if bytes.IndexByte(b, '"') >= 0 {
				v.quotes = append(v.quotes, int32(id))
			} else if a := (Acceptor{mode: mString}); v.Take(&a, int32(id)) {
				v.plain = append(v.plain, int32(id))
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return slices.Compare(tokens[a], tokens[b]) })
	var path []int32 // nodes above
	var before []byte
	pop := func(depth int) {
		for len(path) > depth {
			i := path[len(path)-1]
			v.nodes[i].skip = int32(len(v.nodes)) - i
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
	return v
}

var none = float32(math.Inf(-1))

// Mask is the logits with minus infinity for all tokens that can't follow, in scratch where that is large enough.
func (v *Vocabulary) Mask(a Acceptor, logits, scratch []float32) []float32 {
	out := slices.Grow(scratch[:0], len(logits))[:len(logits)]
	for i := range out {
		out[i] = none
	}
	if a.mode == mString && a.more == 0 {
		for _, id := range v.plain {
			if int(id) < len(logits) {
				out[id] = logits[id]
			}
		}
		for _, id := range v.quotes {
			if int(id) < len(logits) && v.Allowed(a, id) {
				out[id] = logits[id]
			}
		}
		return out
	}
	var path [maxToken + 1]Acceptor
	path[0] = a
	for i := 0; i < len(v.nodes); {
		n := &v.nodes[i]
		at := &path[n.depth+1]
		*at = path[n.depth]
		if !at.Next(n.c) {
			i += int(n.skip)
			continue
		}
		for _, id := range v.ids[n.first:n.end] {
			if int(id) < len(logits) {
				out[id] = logits[id]
			}
		}
		i++
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
