package dataset

import "slices"

// rowHash is FNV-1a over the ids of a row, to count equal rows with.
type rowHash uint64

func newRowHash() rowHash { return 14695981039346656037 }

func (h *rowHash) add(id int32) { *h = (*h ^ rowHash(uint32(id))) * 1099511628211 }

func (r Row) hash() uint64 {
	h := newRowHash()
	for _, id := range r.IDs {
		h.add(id)
	}
	h.addGroup(r.Borders, r.Desirable)
	return uint64(h)
}

// addGroup adds what only a group of several sequences or a labelled row has, as numbers that are no ids.
func (h *rowHash) addGroup(borders []int32, label Desirability) {
	for _, border := range borders {
		h.add(-1 - border)
	}
	if label != Unlabelled {
		h.add(-1 << 30)
		h.add(int32(label))
	}
}

// sortedHashes is how many hashes are compared at a time: their memory, 32 MB, does not grow with the rows.
const sortedHashes = 4 << 20

// duplicates counts the rows that have the tokens of an earlier one.
func duplicates(rows Rows) int {
	passes := uint64(rows.Len()/sortedHashes + 1)
	distinct := 0
	var part []uint64
	for pass := range passes {
		part = part[:0]
		for i := range rows.Len() {
			if h := hashOf(rows, i); passes == 1 || h%passes == pass {
				part = append(part, h)
			}
		}
		slices.Sort(part)
		distinct += len(slices.Compact(part))
	}
	return rows.Len() - distinct
}

// leaked counts the validation rows that are training rows too.
func leaked(train, val Rows) int {
	if val.Len() == 0 {
		return 0
	}
	held := make(map[uint64]int, val.Len()) // the rows of each hash
	for i := range val.Len() {
		held[hashOf(val, i)]++
	}
	n := 0
	for i := range train.Len() {
		if h := hashOf(train, i); held[h] > 0 {
			n += held[h]
			delete(held, h)
		}
	}
	return n
}
