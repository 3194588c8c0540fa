package dataset

import (
	"fmt"
	"iter"
)

// Shard is the loader as rank (from 0) of world sees it in data-parallel training, with a cursor of its own at the same
// place. Every rank deals the whole order, so that all know a step's divisor without communication.
//
// A step's micro-batches are split in their order, as evenly as may be: rank 0 has the first ones. The ranks' shares
// one behind the other are the window of one rank that accumulates over all of it. At the end of an epoch a share may
// be empty; its rank then adds zero to the step's sum.
func (l *Loader) Shard(rank, world int) (*Loader, error) {
	if world < 1 || world > maxWorld || rank < 0 || rank >= world {
		return nil, fmt.Errorf("share out batches: rank %d of %d: want ranks from 0 to one less than their number, which is 1 to %d", rank, world, maxWorld)
	}
	share := *l
	share.rank, share.world = rank, world
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

// NextWindow returns this rank's batches of one optimizer step, n or what the epoch has left for it, and the trained
// tokens of the step over all ranks: the divisor of its loss. Behind the last window of an epoch the next one begins.
func (l *Loader) NextWindow(n int) (window []Batch, trainedTokens int) {
	dealt := l.dealt()
	left := l.batches(dealt.len()) - l.position
	whole := left
	if n = max(n, 1); n <= left/l.world {
		whole = n * l.world
	}
	from, to := l.share(whole)
	for i := range whole {
		if i < from || i >= to {
			trainedTokens += l.trained(dealt, l.position+i)
			continue
		}
		window = append(window, l.batch(dealt, l.epoch, l.position+i))
		trainedTokens += window[len(window)-1].TrainedTokens
	}
	if l.position += whole; whole == left {
		l.epoch, l.position, l.order = l.epoch+1, 0, nil
	}
	return window, trainedTokens
}

// Epoch yields this rank's batches of one epoch and leaves the cursor alone: for evaluation.
func (l *Loader) Epoch(epoch int) iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		dealt := l.sequences(epoch)
		from, to := l.share(l.batches(dealt.len()))
		for p := from; p < to; p++ {
			if !yield(l.batch(dealt, epoch, p)) {
				return
			}
		}
	}
}

// at is the numbers of the sequences of the batch at a position: from (inclusive) to to (exclusive).
func (l *Loader) at(dealt sequences, position int) (from, to int) {
	from = position * l.opt.BatchSize
	return from, min(from+l.opt.BatchSize, dealt.len())
}

func (l *Loader) batch(dealt sequences, epoch, position int) Batch {
	from, to := l.at(dealt, position)
	rows := dealt.part(from, to)
	shape := l.Shape()
	tokens, T := shape.Budgets[0], l.opt.T
	var parts [][]int32
	if shape.Flat {
		tokens = l.budget(l.tokens(rows))
		T, parts = tokens, [][]int32{rows}
	} else {
		for s := from; s < to; s++ {
			parts = append(parts, dealt.part(s, s+1))
		}
	}
	b := newBatch(tokens, shape.Borders, len(rows))
	b.fill(l.rows, parts, T, shape.Longest, l.opt.PadID)
	b.Epoch, b.Last = epoch, position+1 == l.batches(dealt.len())
	return b
}

// trained counts the trained tokens of a batch without making it.
func (l *Loader) trained(dealt sequences, position int) int {
	n := 0
	for _, row := range dealt.part(l.at(dealt, position)) {
		n += l.rows.Trained(int(row))
	}
	return n
}

// tokens counts the tokens of rows.
func (l *Loader) tokens(rows []int32) int {
	n := 0
	for _, row := range rows {
		n += l.rows.Length(int(row))
	}
	return n
}
