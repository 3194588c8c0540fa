package dataset

import "slices"

// rowHash is the FNV-1a hash over the ids of a row. Equal rows are counted by it.
type rowHash uint64

func newRowHash() rowHash { return 14695981039346656037 }

func (h *rowHash) add(id int32) { *h = (*h ^ rowHash(uint32(id))) * 1099511628211 }

func (r Row) hash() uint64 {
	h := newRowHash()
	for _, id := range r.IDs {
		h.add(id)
	}
	h.addGroup(r.Borders, r.Desirable)
	h.addWeights(r.Weights)
	h.addTargets(r.Targets)
	h.addImages(r.Images)
	return uint64(h)
}

// addGroup hashes the boundaries of a group and the label of a row, as numbers that are no token ids.
func (h *rowHash) addGroup(borders []int32, label Desirability) {
	for _, border := range borders {
		h.add(-1 - border)
	}
	if label != Unlabelled {
		h.add(-1 << 30)
		h.add(int32(label))
	}
}

// sortedHashes is how many hashes are compared at a time. It bounds their memory to 32 MB, however many rows there are.
const sortedHashes = 4 << 20

// duplicates counts the rows whose tokens equal those of an earlier row.
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

// leaked counts the validation rows that are also training rows.
func leaked(train, val Rows) int {
	if val.Len() == 0 {
		return 0
	}
	held := make(map[uint64]int, val.Len()) // validation rows by hash
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
