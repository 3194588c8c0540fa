package tokenizer

import "math/bits"

// noRank is the rank of a pair that no merge joins.
const noRank = ^uint32(0)

// merge is the result of merging a pair of tokens: the rank of the merge and the resulting token.
type merge struct {
	rank uint32
	id   int32
}

// pairTable maps pairs of tokens to their merge: open addressing, at most half full.
type pairTable struct {
	slots []pairSlot
	shift int
}

type pairSlot struct {
	key uint64 // left token + 1 in the upper half, right token in the lower; 0 is an empty slot
	merge
}

func newPairTable(n int) pairTable {
	size := bits.Len(uint(2*n + 1))
	return pairTable{slots: make([]pairSlot, 1<<size), shift: 64 - size}
}

func (t *pairTable) slot(left, right int32) *pairSlot {
	key := uint64(left+1)<<32 | uint64(uint32(right))
	mask := uint64(len(t.slots) - 1)
	for k := (key * 0x9E3779B97F4A7C15) >> t.shift; ; k = (k + 1) & mask {
		if s := &t.slots[k]; s.key == key || s.key == 0 {
			return s
		}
	}
}

// put sets the merge of a pair; if a pair is set twice, the later merge counts.
func (t *pairTable) put(left, right int32, m merge) {
	s := t.slot(left, right)
	s.key = uint64(left+1)<<32 | uint64(uint32(right))
	s.merge = m
}

// get returns the merge of a pair, with noRank if there is none.
func (t *pairTable) get(left, right int32) merge {
	s := t.slot(left, right)
	if s.key == 0 {
		return merge{rank: noRank}
	}
	return s.merge
}
