package dataset

import (
	"fmt"
	"iter"
)

// Shard is the loader as rank (from 0) of world sees it in data-parallel training, with a cursor of its own at the same
// place. Every rank deals the whole order, and reads
// the whole of a stream, so that all know a step's divisor without communication.
//
// A step's micro-batches are split in their order, as evenly as may be: rank 0 has the first ones. The ranks' shares
// one behind the other are the window of one rank that accumulates over all of it. At the end of an epoch a share may
// be empty; its rank then adds zero to the step's sum.
func (l *Loader) Shard(rank, world int) (*Loader, error) {
	if world < 1 || world > maxWorld || rank < 0 || rank >= world {
		return nil, fmt.Errorf("share out batches: rank %d of %d: want ranks from 0 to one less than their number, which is 1 to %d", rank, world, maxWorld)
	}
	share := *l
	share.rank, share.world, share.from = rank, world, l.from.share()
	return &share, nil
}

const maxWorld = 1 << 16

// share is the part of n batches that this rank takes: from (inclusive) to to (exclusive).
func (l *Loader) share(n int) (from, to int) {
	each, more := n/l.world, n%l.world
	from = l.rank*each + min(l.rank, more)
	to = from + each
	if l.rank < more {
		to++
	}
	return from, to
}

// NextWindow returns this rank's batches of one optimizer step, n (each in the pieces of Split) or what the epoch has left
// for it, and the trained tokens of the step over all ranks: the divisor of its loss. Behind the last window of an epoch the next one begins.
// Errors are those of reading, of a stream or of tokens in the cache that have become damaged; the cursor then stands
// where it stood.
func (l *Loader) NextWindow(n int) (window []Batch, trainedTokens int, err error) {
	type taken struct {
		of       *stretch
		position int
	}
	var step []taken
	next := *l
	for next.at.epoch == l.at.epoch && len(step)/l.world < max(n, 1) {
		s, err := next.stretch()
		if err != nil {
			return nil, 0, err
		}
		step = append(step, taken{s, next.position})
		if next.position++; next.position == l.opt.batches(s.dealt.len()) {
			next.at, next.position, next.held, next.before = s.next, 0, nil, s.to
			if s.last() {
				next.before = 0
			}
		}
	}
	from, to := l.share(len(step))
	for _, t := range step[from:to] {
		if err := l.verify(t.of, t.position); err != nil {
			return nil, 0, err
		}
	}
	*l = next
	for i, t := range step {
		if i < from || i >= to {
			trainedTokens += l.trained(t.of, t.position)
			continue
		}
		for piece := t.position * l.pieces; piece < min((t.position+1)*l.pieces, l.dealt().batches(t.of.dealt.len())); piece++ {
			window = append(window, l.batch(t.of, piece))
			trainedTokens += window[len(window)-1].TrainedTokens
		}
	}
	if s := step[len(step)-1].of; s.epoch < l.at.epoch && s.ended != nil {
		s.ended()
	}
	return window, trainedTokens, nil
}

// Epoch yields this rank's batches of one epoch of a set and leaves the cursor alone: for evaluation.
// An error, as of NextWindow, ends it.
func (l *Loader) Epoch(epoch int) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		s := l.preview(epoch)
		from, to := l.share(l.opt.batches(s.dealt.len()))
		for p := from; p < to; p++ {
			if err := l.verify(s, p); err != nil {
				yield(Batch{}, err)
				return
			}
			for piece := p * l.pieces; piece < min((p+1)*l.pieces, l.dealt().batches(s.dealt.len())); piece++ {
				if !yield(l.batch(s, piece), nil) {
					return
				}
			}
		}
	}
}

// verify checks what is stored of the rows of a batch.
func (l *Loader) verify(of *stretch, position int) error {
	for _, row := range l.opt.in(of, position) {
		if err := verify(of.rows, int(row)); err != nil {
			return err
		}
	}
	return nil
}

// at is the numbers of the sequences of the batch at a position of so many sequences: from (inclusive) to to (exclusive).
func (o Options) at(position, sequences int) (from, to int) {
	from = position * o.BatchSize
	return from, min(from+o.BatchSize, sequences)
}

// in is the rows of the batch at a position.
func (o Options) in(s *stretch, position int) []int32 {
	return s.dealt.part(o.at(position, s.dealt.len()))
}

// batch is the micro-batch at a position, counted in pieces.
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

// count is the tokens of rows.
func (s *stretch) count(rows []int32) int {
	n := 0
	for _, row := range rows {
		n += s.rows.Length(int(row))
	}
	return n
}
