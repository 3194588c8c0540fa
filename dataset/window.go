package dataset

import (
	"fmt"
	"iter"
)

// Shard returns this loader as one rank (from 0) of `world` ranks in data-parallel training sees it, with a cursor of
// its own at the same place. Every rank deals the whole order (and reads the whole stream), so that all ranks know a
// step's divisor without communication.
//
// Micro-batches of a step are dealt round by round: micro-batch i goes to rank i mod world in round i / world. So the
// micro-batches of one round, in the order of the ranks, are consecutive, and a single rank that accumulates all of
// them has the same window. At the end of an epoch the last round may have no micro-batch for the last ranks.
func (l *Loader) Shard(rank, world int) (*Loader, error) {
	if world < 1 || world > maxWorld || rank < 0 || rank >= world {
		return nil, fmt.Errorf("share out batches: rank %d of %d: want ranks from 0 to one less than their number, "+
			"which is 1 to %d", rank, world, maxWorld)
	}
	share := *l
	share.rank, share.world, share.from = rank, world, l.from.share()
	return &share, nil
}

const maxWorld = 1 << 16

// Quiet stops this shard from reporting the ends of epochs. It is for a second loader of the same rank.
func (l *Loader) Quiet() { l.quiet = true }

// owns reports whether this rank takes the micro-batch at a position of a window, or the batch at a position of an
// epoch.
func (l *Loader) owns(place int) bool { return place%l.world == l.rank }

// Step is the micro-batches of one optimizer step as one rank sees them.
type Step struct {
	Batches []Batch // this rank's batches, one a round
	All     []Batch // batches of all ranks in the order of the window, if requested; else nil
	Rounds  int     // the most rounds of any rank

	// Trained, Sequences and Groups count the trained tokens, the sequences and the rows of the step over all ranks. An
	// objective divides its loss by one of these counts.
	Trained, Sequences, Groups int
	// Progress is the position after the step, in epochs.
	Progress float64
	// Values are numbers of the step that are known before it is computed, such as its mean reward; nil = none.
	Values []Value
}

// Value is a number by its name.
type Value struct {
	Name  string
	Value float64
}

// NextWindow returns this rank's batches of one optimizer step, and the trained tokens of the step over all ranks; see
// NextStep.
func (l *Loader) NextWindow(n int) (window []Batch, trainedTokens int, err error) {
	s, err := l.NextStep(n, false)
	return s.Batches, s.Trained, err
}

// NextStep deals one optimizer step of n batches a rank (each in the pieces of Split), or what is left of the epoch.
// all also returns the batches of the other ranks. After the last window of an epoch the next epoch begins. An error
// means that reading failed, for a stream or for tokens in the cache that were damaged since; the cursor then stays
// where it was.
func (l *Loader) NextStep(n int, all bool) (Step, error) {
	type taken struct {
		of       *stretch
		position int
	}
	var batches []taken
	next := *l
	for next.at.epoch == l.at.epoch && len(batches)/l.world < max(n, 1) {
		s, err := next.stretch()
		if err != nil {
			return Step{}, err
		}
		batches = append(batches, taken{s, next.position})
		if next.position++; next.position == l.opt.batches(s.dealt.len()) {
			next.at, next.position, next.held, next.before = s.next, 0, nil, s.to
			if s.last() {
				next.before = 0
			}
		}
	}
	var step Step
	place := 0
	for _, t := range batches {
		first, mine := place, all
		for _, row := range l.opt.in(t.of, t.position) {
			step.Groups++
			step.Sequences += sequencesOf(t.of.rows, int(row))
		}
		place += l.piecesOf(t.of, t.position)
		for i := first; i < place; i++ {
			mine = mine || l.owns(i)
		}
		if !mine {
			step.Trained += l.trained(t.of, t.position)
			continue
		}
		if err := l.verify(t.of, t.position); err != nil {
			return Step{}, err
		}
		if !all {
			step.Trained += l.trained(t.of, t.position)
		}
		for i := range place - first {
			if !all && !l.owns(first+i) {
				continue
			}
			b := l.batch(t.of, t.position*l.pieces+i)
			if all {
				step.All = append(step.All, b)
				step.Trained += b.TrainedTokens
			}
			if l.owns(first + i) {
				step.Batches = append(step.Batches, b)
			}
		}
	}
	step.Rounds = (place + l.world - 1) / l.world
	*l = next
	step.Progress = l.Progress()
	if s := batches[len(batches)-1].of; s.epoch < l.at.epoch && s.ended != nil && l.rank == 0 && !l.quiet {
		s.ended()
	}
	return step, nil
}

// piecesOf returns the number of pieces in which the batch at a position is dealt.
func (l *Loader) piecesOf(of *stretch, position int) int {
	return min((position+1)*l.pieces, l.dealt().batches(of.dealt.len())) - position*l.pieces
}

// Epoch yields this rank's batches of one epoch of a set (every world-th batch) without moving the cursor, for
// evaluation. It ends at the first error, as NextWindow returns it.
func (l *Loader) Epoch(epoch int) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		s := l.preview(epoch)
		for p := l.rank; p < l.opt.batches(s.dealt.len()); p += l.world {
			if err := l.verify(s, p); err != nil {
				yield(Batch{}, err)
				return
			}
			for i := range l.piecesOf(s, p) {
				if !yield(l.batch(s, p*l.pieces+i), nil) {
					return
				}
			}
		}
	}
}

// verify checks the stored data of the rows of a batch.
func (l *Loader) verify(of *stretch, position int) error {
	for _, row := range l.opt.in(of, position) {
		if err := verify(of.rows, int(row)); err != nil {
			return err
		}
	}
	return nil
}

// at returns the half-open range of sequences of the batch at a position, out of the given number of sequences.
func (o Options) at(position, sequences int) (from, to int) {
	from = position * o.BatchSize
	return from, min(from+o.BatchSize, sequences)
}

// in returns the rows of the batch at a position.
func (o Options) in(s *stretch, position int) []int32 {
	return s.dealt.part(o.at(position, s.dealt.len()))
}

// batch returns the micro-batch at a position, counted in pieces.
func (l *Loader) batch(of *stretch, position int) Batch {
	opt := l.dealt()
	from, to := opt.at(position, of.dealt.len())
	rows := of.dealt.part(from, to)
	shape := l.Shape()
	tokens, T := shape.Budgets[0], l.opt.T
	var parts [][]int32
	if shape.Flat {
		tokens = l.budget(of.count(rows))
		T, parts = tokens, [][]int32{rows}
	} else {
		for s := from; s < to; s++ {
			parts = append(parts, of.dealt.part(s, s+1))
		}
	}
	b := newBatch(tokens, shape.Borders, len(rows))
	b.of = of.rows
	b.fill(parts, T, shape.Longest, l.opt.PadID)
	b.Epoch, b.Last = of.epoch, of.last() && position+1 == opt.batches(of.dealt.len())
	return b
}

// trained counts the trained tokens of a batch without making it.
func (l *Loader) trained(of *stretch, position int) int {
	n := 0
	for _, row := range l.opt.in(of, position) {
		n += of.rows.Trained(int(row))
	}
	return n
}

// count returns the number of tokens of rows.
func (s *stretch) count(rows []int32) int {
	n := 0
	for _, row := range rows {
		n += s.rows.Length(int(row))
	}
	return n
}
