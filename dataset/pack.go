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
func pack(rows []Row, order []int32, T, most int) [][]int32 {
	var sequences [][]int32
	for window := range slices.Chunk(order, packWindow) {
		sequences = append(sequences, packOne(rows, window, T, most)...)
	}
	return sequences
}

func packOne(rows []Row, window []int32, T, most int) [][]int32 {
	longest := slices.Clone(window)
	slices.SortStableFunc(longest, func(a, b int32) int {
		return cmp.Compare(len(rows[b].IDs), len(rows[a].IDs))
	})
	var sequences [][]int32
	open := newRoomIndex(T)
	for _, i := range longest {
		n := len(rows[i].IDs)
		s, room, ok := open.take(n)
		if !ok {
			s, room = len(sequences), T
			sequences = append(sequences, nil)
		}
		sequences[s] = append(sequences[s], i)
		if room > n && len(sequences[s]) < most {
			open.put(s, room-n)
		}
	}
	return sequences
}

// roomIndex finds the open sequence with the least room that is enough; of equals the one opened last.
type roomIndex struct {
	byRoom [][]int  // [T+1]
	used   []uint64 // a bit for each room with a sequence
}

func newRoomIndex(T int) *roomIndex {
	return &roomIndex{byRoom: make([][]int, T+1), used: make([]uint64, T/64+1)}
}

func (x *roomIndex) put(sequence, room int) {
	x.byRoom[room] = append(x.byRoom[room], sequence)
	x.used[room/64] |= 1 << (room % 64)
}

func (x *roomIndex) take(n int) (sequence, room int, ok bool) {
	word := n / 64
	bits := x.used[word] &^ (1<<(n%64) - 1)
	for bits == 0 {
		if word++; word == len(x.used) {
			return 0, 0, false
		}
		bits = x.used[word]
	}
	room = word*64 + mathbits.TrailingZeros64(bits)
	list := x.byRoom[room]
	sequence, x.byRoom[room] = list[len(list)-1], list[:len(list)-1]
	if len(list) == 1 {
		x.used[word] &^= 1 << (room % 64)
	}
	return sequence, room, true
}
