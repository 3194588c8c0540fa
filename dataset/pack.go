package dataset

import (
	"cmp"
	mathbits "math/bits"
	"slices"
)

// packWindow is how many rows of the epoch's order are packed together: enough to fill the sequences to a few per
// cent, few enough that an epoch stays mixed.
const packWindow = 4096

// pack puts the rows of order into sequences of at most T tokens and at most most rows: best fit, longest first, window
// by window. The result depends on order and lengths alone; each row is in exactly one sequence.
func pack(rows Rows, order []int32, T, most int) [][]int32 {
	var sequences [][]int32
	for window := range slices.Chunk(order, packWindow) {
		sequences = append(sequences, packOne(rows, window, T, most)...)
	}
	return sequences
}

func packOne(rows Rows, window []int32, T, most int) [][]int32 {
	longest := slices.Clone(window)
	slices.SortStableFunc(longest, func(a, b int32) int {
		return cmp.Compare(rows.Length(int(b)), rows.Length(int(a)))
	})
	var sequences [][]int32
	open := newFreeIndex(T)
	for _, i := range longest {
		n := rows.Length(int(i))
		s, free, ok := open.take(n)
		if !ok {
			s, free = len(sequences), T
			sequences = append(sequences, nil)
		}
		sequences[s] = append(sequences[s], i)
		if free > n && len(sequences[s]) < most {
			open.put(s, free-n)
		}
	}
	return sequences
}

// freeIndex finds the open sequence with the least free tokens that are enough; of equals the one opened last.
type freeIndex struct {
	byFree [][]int  // [T+1]
	used   []uint64 // a bit for each number of free tokens with a sequence
}

func newFreeIndex(T int) *freeIndex {
	return &freeIndex{byFree: make([][]int, T+1), used: make([]uint64, T/64+1)}
}

func (x *freeIndex) put(sequence, free int) {
	x.byFree[free] = append(x.byFree[free], sequence)
	x.used[free/64] |= 1 << (free % 64)
}

func (x *freeIndex) take(n int) (sequence, free int, ok bool) {
	word := n / 64
	bits := x.used[word] &^ (1<<(n%64) - 1)
	for bits == 0 {
		if word++; word == len(x.used) {
			return 0, 0, false
		}
		bits = x.used[word]
	}
	free = word*64 + mathbits.TrailingZeros64(bits)
	list := x.byFree[free]
	sequence, x.byFree[free] = list[len(list)-1], list[:len(list)-1]
	if len(list) == 1 {
		x.used[word] &^= 1 << (free % 64)
	}
	return sequence, free, true
}
