package dataset

import (
	"cmp"
	"slices"
)

// Even makes the batches of a step alike in work, so that no rank waits long for another: the sequences of each step, so many
// batches over all ranks, are shared out to its batches anew. A row of n tokens counts n x tokenCost + n x n: what a token
// costs beside attention, in pairs of tokens, and its attention. Which rows a step has stays as it is, and nothing depends on
// the number of ranks.
//
// The batch with the most work comes first: ranks take them in turn, so those of a round are alike. Pieces (Split) of a batch
// are made alike in the same way. In steps of one batch nothing changes.
func (l *Loader) Even(batches, tokenCost int) {
	if l.step, l.tokenCost = batches, tokenCost; batches <= 1 {
		l.step, l.tokenCost = 0, 0
	}
	l.evenHeld()
}

// evenHeld forms the batches anew of the stretch that is held.
func (l *Loader) evenHeld() {
	if l.held != nil {
		l.held = l.evened(l.held)
	}
}

// evened is a stretch with even batches.
func (l *Loader) evened(s *stretch) *stretch {
	even := *s
	if s.came.rows == nil {
		even.came = s.dealt
	}
	if l.step == 0 {
		even.dealt = even.came
		return &even
	}
	order := upTo(even.came.len())
	e := evener{cost: make([]int64, len(order)), empty: l.opt.cost(s.rows, nil, 0)}
	for i := range e.cost {
		e.cost[i] = l.opt.cost(s.rows, even.came.part(i, i+1), int64(l.tokenCost))
	}
	for step := range slices.Chunk(order, min(l.step, len(order))*l.opt.BatchSize) {
		e.form(step, l.opt.BatchSize)
		for batch := range slices.Chunk(step, l.opt.BatchSize) {
			e.form(batch, l.opt.BatchSize/l.pieces)
		}
	}
	even.dealt = even.came.in(order)
	return &even
}

// cost is the work of a sequence. With Packing or Padded all have as many tokens, and attention alone differs, also that of
// padding.
func (o Options) cost(rows Rows, sequence []int32, token int64) int64 {
	tokens, pairs := int64(0), int64(0)
	for _, row := range sequence {
		for length := range sequenceLengths(rows, int(row)) {
			n := int64(length)
			tokens, pairs = tokens+n, pairs+n*n
		}
	}
	if o.flat() {
		return tokens*token + pairs
	}
	padding := int64(o.T) - tokens
	return pairs + padding*min(padding, int64(o.Longest))
}

// evener forms batches of sequences whose work is known.
type evener struct {
	cost    []int64 // of each sequence
	empty   int64   // of one without a row
	largest []costed
	batches []evenBatch // as they came, then shared out
	in      []int32     // what those lie in
	open    []*evenBatch
}

type costed struct {
	cost int64
	at   int32
}

type evenBatch struct {
	cost      int64
	sequences []int32 // with room for as many as it takes
}

// form reorders sequences so that each size of them, one behind the other, are a batch, the last with what is left. Each
// sequence, that of the most work first, goes to the batch that has the least work and still has room; where that makes no
// better batches than there are, these keep what they have. All of full size come in the order of their work.
func (e *evener) form(sequences []int32, size int) {
	differs := func(s int32) bool { return e.cost[s] != e.cost[sequences[0]] }
	if len(sequences) <= size || !slices.ContainsFunc(sequences, differs) {
		return
	}
	e.in = append(append(e.in[:0], sequences...), sequences...)
	e.batches = e.batches[:0]
	for came := range slices.Chunk(e.in[:len(sequences)], size) {
		cost := e.empty * int64(size-len(came))
		for _, s := range came {
			cost += e.cost[s]
		}
		e.batches = append(e.batches, evenBatch{cost, came})
	}
	came := len(e.batches)
	for room := range slices.Chunk(e.in[len(sequences):], size) {
		e.batches = append(e.batches, evenBatch{e.empty * int64(size-len(room)), room[:0]})
	}
	batches := e.batches[:came]
	if size > 1 {
		if e.share(e.batches[came:], sequences); mostWork(e.batches[came:]) < mostWork(batches) {
			batches = e.batches[came:]
		}
	}
	slices.SortStableFunc(batches[:len(sequences)/size], func(a, b evenBatch) int { return cmp.Compare(b.cost, a.cost) })
	at := sequences[:0]
	for _, b := range batches {
		slices.Sort(b.sequences)
		at = append(at, b.sequences...)
	}
}

func mostWork(all []evenBatch) (most int64) {
	for i := range all {
		most = max(most, all[i].cost)
	}
	return most
}

// share puts sequences into batches.
func (e *evener) share(batches []evenBatch, sequences []int32) {
	e.largest = e.largest[:0]
	for _, s := range sequences {
		e.largest = append(e.largest, costed{e.cost[s], s})
	}
	slices.SortFunc(e.largest, func(a, b costed) int {
		if a.cost != b.cost {
			return cmp.Compare(b.cost, a.cost)
		}
		return cmp.Compare(a.at, b.at)
	})
	e.open = e.open[:0] // a heap, the least work first
	for i := range batches {
		e.open = append(e.open, &batches[i])
	}
	last := len(e.open) - 1
	e.open[0], e.open[last] = e.open[last], e.open[0] // which alone may be smaller, and begin with the work of what it lacks
	e.sink()
	for _, s := range e.largest {
		b := e.open[0]
		b.cost, b.sequences = b.cost+s.cost, append(b.sequences, s.at)
		if len(b.sequences) == cap(b.sequences) {
			last := len(e.open) - 1
			e.open[0], e.open = e.open[last], e.open[:last]
		}
		e.sink()
	}
}

// sink puts the first of the open batches in its place.
func (e *evener) sink() {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(e.open); child++ {
			if e.open[child].cost < e.open[least].cost {
				least = child
			}
		}
		if least == i {
			return
		}
		e.open[i], e.open[least] = e.open[least], e.open[i]
		i = least
	}
}
