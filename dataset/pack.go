package dataset

import (
	mathbits "math/bits"
	"slices"
)

// packWindow is how many rows of the epoch's order are packed together: enough to leave only a few per cent of padding,
// few enough that an epoch stays shuffled. A stream is shuffled within windows of the same size.
const packWindow = 4096

// sequences are rows grouped into sequences, in the order in which an epoch deals them.
type sequences struct {
	rows []int32
	ends []int32 // [sequences] end of each sequence in rows; nil = every row is a sequence
}

func (s sequences) len() int {
	if s.ends == nil {
		return len(s.rows)
	}
	return len(s.ends)
}

// part returns the rows of the sequences in the half-open range [from,to).
func (s sequences) part(from, to int) []int32 {
	if s.ends == nil {
		return s.rows[from:to]
	}
	start := int32(0)
	if from > 0 {
		start = s.ends[from-1]
	}
	return s.rows[start:s.ends[to-1]]
}

// shuffled returns the sequences in another order.
func (s sequences) shuffled(rng *random) sequences {
	order := upTo(s.len())
	shuffle(rng, order)
	return s.in(order)
}

// in returns the sequences in the given order.
func (s sequences) in(order []int32) sequences {
	if s.ends == nil {
		to := sequences{rows: make([]int32, len(order))}
		for i, from := range order {
			to.rows[i] = s.rows[from]
		}
		return to
	}
	to := sequences{rows: make([]int32, 0, len(s.rows)), ends: make([]int32, 0, len(s.ends))}
	for _, i := range order {
		to.rows = append(to.rows, s.part(int(i), int(i)+1)...)
		to.ends = append(to.ends, int32(len(to.rows)))
	}
	return to
}

// upTo returns 0, 1, ..., n-1.
func upTo(n int) []int32 {
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	return order
}

// pack puts the rows of order into packed sequences of at most T tokens and at most `most` segments: best fit, longest
// row first, in windows of the given number of rows. group is the most sequences of a row, and most is at least group.
// The result depends only on order and lengths. Each row is in exactly one packed sequence, as a whole.
func pack(rows Rows, order []int32, T, most, group, window int) sequences {
	p := packer{rows: rows, T: T, most: most, group: max(group, 1), open: newFreeIndex(T, min(window, len(order)))}
	p.to.rows = make([]int32, 0, len(order))
	for part := range slices.Chunk(order, window) {
		p.pack(part)
	}
	return p.to
}

// packer holds the memory that windows share.
type packer struct {
	rows    Rows
	T, most int
	group   int // the most sequences of a row
	open    *freeIndex
	// of the window: a row's length and its place in the window, sorted so that the longest rows come first
	longest  []uint64
	in       []int32 // [rows of the window] packed sequence of each row
	held     []int32 // [packed sequences of the window] number of rows
	segments []int32 // [packed sequences of the window] number of sequences of their rows
	to       sequences
}

func (p *packer) pack(window []int32) {
	p.longest, p.in, p.held, p.segments = p.longest[:0], p.in[:0], p.held[:0], p.segments[:0]
	for place, i := range window {
		p.longest = append(p.longest, uint64(p.T-p.rows.Length(int(i)))<<32|uint64(place))
	}
	slices.Sort(p.longest)
	p.open.clear()
	for _, key := range p.longest {
		n := p.T - int(key>>32)
		s, free, ok := p.open.take(n)
		if !ok {
			s, free = len(p.held), p.T
			p.held, p.segments = append(p.held, 0), append(p.segments, 0)
		}
		p.in = append(p.in, int32(s))
		p.held[s]++
		p.segments[s] += int32(1 + len(bordersOf(p.rows, int(window[uint32(key)]))))
		if free > n && int(p.segments[s])+p.group <= p.most { // there are enough segments left for any row
			p.open.put(s, free-n)
		}
	}
	at := len(p.to.rows)
	p.to.rows = p.to.rows[:at+len(window)]
	for s, n := range p.held { // from now on, next[s] is where the next row of sequence s goes
		p.held[s] = int32(at)
		at += int(n)
		p.to.ends = append(p.to.ends, int32(at))
	}
	for i, key := range p.longest {
		s := p.in[i]
		p.to.rows[p.held[s]] = window[uint32(key)]
		p.held[s]++
	}
}

// freeIndex finds the open sequence with the fewest free tokens that are enough. Among equals it finds the one added
// last.
type freeIndex struct {
	first []int32  // [T+1] the sequence added last among those with this many free tokens; valid where used has a bit
	next  []int32  // [sequences] the sequence added before it, -1 = none
	used  []uint64 // one bit for each number of free tokens that some sequence has
}

func newFreeIndex(T, most int) *freeIndex {
	return &freeIndex{first: make([]int32, T+1), next: make([]int32, most), used: make([]uint64, T/64+1)}
}

func (x *freeIndex) clear() { clear(x.used) }

func (x *freeIndex) put(sequence, free int) {
	x.next[sequence] = -1
	if x.used[free/64]&(1<<(free%64)) != 0 {
		x.next[sequence] = x.first[free]
	}
	x.first[free] = int32(sequence)
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
	sequence = int(x.first[free])
	if x.first[free] = x.next[sequence]; x.first[free] < 0 {
		x.used[word] &^= 1 << (free % 64)
	}
	return sequence, free, true
}
