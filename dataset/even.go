package dataset

import (
	"cmp"
	"slices"
)

// Even balances the work of the batches of each step, so that no rank waits long for another: it redistributes the
// sequences of a step of the given number of batches (over all ranks) among these batches. The cost of a row of n
// tokens is n*tokenCost + n*n, in pairs of tokens: the work per token outside attention, and attention. The rows of a
// step stay the same, and the result does not depend on the number of ranks.
//
// The batch with the most work comes first: ranks take batches in turn, so the batches of one round are similar. The
// pieces of a batch (Split) are balanced in the same way. Steps of one batch do not change.
func (l *Loader) Even(batches, tokenCost int) {
	if l.step, l.tokenCost = batches, tokenCost; batches <= 1 {
		l.step, l.tokenCost = 0, 0
	}
	l.evenHeld()
}

// evenHeld balances the batches of the current stretch.
func (l *Loader) evenHeld() {
	if l.held != nil {
		l.held = l.evened(l.held)
	}
}

// evened returns a stretch with balanced batches.
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

// cost returns the work of a sequence. With Packing or Padded all sequences have the same number of tokens and differ
// only in attention, including the attention of padding.
func (o Options) cost(rows Rows, sequence []int32, token int64) int64 {
	tokens, pairs := int64(0), int64(0)
	for _, row := range sequence {
		prefix, first := int64(prefixOf(rows, int(row))), true
		for length := range sequenceLengths(rows, int(row)) {
			n := int64(length)
			tokens, pairs = tokens+n, pairs+n*n
			if !first {
				pairs += 2 * n * prefix // every token of the sequence sees the whole prefix
			}
			first = false
		}
	}
	if o.flat() {
		return tokens*token + pairs
	}
	padding := int64(o.T) - tokens
	return pairs + padding*min(padding, int64(o.Longest))
}

// evener distributes sequences of known work over batches.
type evener struct {
	cost    []int64 // cost[i] is the work of sequence i
	empty   int64   // work of a sequence without rows
	largest []costed
	batches []evenBatch // batches in their old order, then with their new sequences
	in      []int32     // memory of the batches' sequences
	open    []*evenBatch
}

type costed struct {
	cost int64
	at   int32
}

type evenBatch struct {
	cost      int64
	sequences []int32 // sequences of the batch; its capacity is the batch's size
}

// form reorders sequences so that each consecutive `size` of them are a batch; the last batch may be smaller. It
// assigns each sequence, in falling order of work, to the batch with the least work that has space left. If this does
// not improve the balance, the batches keep their sequences. Full batches come in falling order of work.
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
	slices.SortStableFunc(batches[:len(sequences)/size],
		func(a, b evenBatch) int { return cmp.Compare(b.cost, a.cost) })
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

// share assigns sequences to batches.
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
	e.open = e.open[:0] // a heap of the batches with space left, least work first
	for i := range batches {
		e.open = append(e.open, &batches[i])
	}
	last := len(e.open) - 1
	// only the last batch can be smaller; its work includes that of its missing sequences
	e.open[0], e.open[last] = e.open[last], e.open[0]
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

// sink restores the heap after its first batch has changed.
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
