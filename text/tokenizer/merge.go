package tokenizer

// longWord is the number of symbols above which the heap is faster than scanning for the best pair.
const longWord = 48

// symbol is a token of a word while merges are applied.
type symbol struct {
	id         int32
	size       int32 // length in bytes of the word
	prev, next int32 // neighbours, -1 at the ends (heap only)
	best       merge // the merge with the symbol to the right
}

// scratch is the working memory of one call.
type scratch struct {
	cuts    []cut
	symbols []symbol
	heap    []uint64
	tokens  []token
	nearby  []nearWord
	best    []bestCut
	name    []byte
	work    *work // budget of the current text
}

// mergeAll applies merges to the symbols in sc, lowest rank first and leftmost first among equals, and keeps the
// remaining symbols in order.
func (sc *scratch) mergeAll(table *pairTable) {
	if len(sc.symbols) < 2 {
		return
	}
	if len(sc.symbols) < longWord {
		sc.mergeShort(table)
		return
	}
	sc.mergeLong(table)
}

func (sc *scratch) mergeShort(table *pairTable) {
	s := sc.symbols
	last := len(s) - 1
	for i := range last {
		s[i].best = table.get(s[i].id, s[i+1].id)
	}
	for last > 0 {
		at, rank := 0, noRank
		for i := range s[:last] {
			if r := s[i].best.rank; r < rank {
				at, rank = i, r
			}
		}
		if rank == noRank {
			break
		}
		s[at].id = s[at].best.id
		s[at].size += s[at+1].size
		copy(s[at+1:], s[at+2:])
		s = s[:last]
		last--
		if at < last {
			s[at].best = table.get(s[at].id, s[at+1].id)
		}
		if at > 0 {
			s[at-1].best = table.get(s[at-1].id, s[at].id)
		}
	}
	sc.symbols = s
}

// mergeLong keeps the candidate merges in a heap (rank in the upper half, position in the lower). It takes n log n
// steps for any word.
func (sc *scratch) mergeLong(table *pairTable) {
	s := sc.symbols
	n := len(s)
	h := sc.heap[:0]
	for i := range s {
		s[i].prev, s[i].next = int32(i-1), int32(i+1)
		if i == n-1 {
			s[i].next = -1
			break
		}
		s[i].best = table.get(s[i].id, s[i+1].id)
		if s[i].best.rank != noRank {
			h = append(h, uint64(s[i].best.rank)<<32|uint64(uint32(i)))
		}
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	offer := func(i int32) {
		a := &s[i]
		if a.next < 0 {
			a.best = merge{rank: noRank}
			return
		}
		a.best = table.get(a.id, s[a.next].id)
		if a.best.rank != noRank {
			h = append(h, uint64(a.best.rank)<<32|uint64(uint32(i)))
			siftUp(h)
		}
	}
	for len(h) > 0 {
		top := h[0]
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		siftDown(h, 0)
		a := &s[uint32(top)]
		if a.size == 0 || a.next < 0 || a.best.rank != uint32(top>>32) {
			continue // the pair changed after it was added to the heap
		}
		b := &s[a.next]
		a.id = a.best.id
		a.size += b.size
		b.size = 0
		a.next = b.next
		if a.next >= 0 {
			s[a.next].prev = int32(uint32(top))
		}
		offer(int32(uint32(top)))
		if a.prev >= 0 {
			offer(a.prev)
		}
	}
	sc.heap = h[:0]
	out := s[:0]
	for i := int32(0); i >= 0; {
		next := s[i].next
		out = append(out, s[i])
		i = next
	}
	sc.symbols = out
}

func siftDown(h []uint64, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[i] <= h[c] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func siftUp(h []uint64) {
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if h[p] <= h[i] {
			return
		}
		h[p], h[i] = h[i], h[p]
		i = p
	}
}
