package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// Options of a Loader.
type Options struct {
	BatchSize int // B
	T         int // tokens a sequence; at least the longest row
	PadID     int32
	Seed      uint64
	Shuffle   bool
	Packing   bool
}

// Loader deals rows in batches of one shape, epoch after epoch, every row once an epoch. The order is a function of
// the seed and the epoch, over all ranks of a data-parallel run (Shard). It is not safe for concurrent use.
type Loader struct {
	rows   Rows
	opt    Options
	most   int // rows a sequence may hold
	digest string

	rank, world int // which of how many shares NextWindow and Epoch give

	epoch     int
	position  int       // the next batch of the epoch, whichever rank takes it
	sequences [][]int32 // of the epoch; nil = not dealt yet
}

// State is the cursor of a Loader, with what must be the same for it to mean the same batches. It is the same on every
// rank and means the same at every world size.
type State struct {
	Epoch     int    `json:"epoch"`
	Position  int    `json:"position"` // batches of the epoch that were taken, by all ranks
	BatchSize int    `json:"batch_size"`
	T         int    `json:"sequence_length"`
	Seed      uint64 `json:"seed"`
	Shuffle   bool   `json:"shuffle"`
	Packing   bool   `json:"packing"`
	Rows      int    `json:"rows"`
	Data      string `json:"data"` // SHA-256 over ids and labels
}

// TrainLoader deals the training rows as the set's config says, batchSize sequences a batch.
func (s *Set) TrainLoader(batchSize int) (*Loader, error) {
	return NewLoader(s.Train, s.options(batchSize, s.Config.Shuffle))
}

// ValLoader deals the validation rows in file order.
func (s *Set) ValLoader(batchSize int) (*Loader, error) {
	return NewLoader(s.Val, s.options(batchSize, false))
}

func (s *Set) options(batchSize int, shuffled bool) Options {
	return Options{
		BatchSize: batchSize, T: s.SequenceLength(), PadID: s.PadID,
		Seed: s.Config.Seed, Shuffle: shuffled, Packing: s.Config.Packing,
	}
}

// SequenceLength is T of both loaders, so that evaluation has the shape of training: MaxLength, or without packing the
// longest row of the set rounded up to 8.
func (s *Set) SequenceLength() int {
	if s.Config.Packing || s.Config.PadTo == PadMaxLength {
		return s.Config.MaxLength
	}
	longest := 0
	for _, rows := range []Rows{s.Train, s.Val} {
		for i := range rows.Len() {
			longest = max(longest, rows.Length(i))
		}
	}
	return min((longest+7)/8*8, s.Config.MaxLength)
}

// NewLoader checks that the rows fit the options.
func NewLoader(rows Rows, opt Options) (*Loader, error) {
	if rows.Len() == 0 {
		return nil, errors.New("load batches: there are no rows")
	}
	if opt.BatchSize < 1 || opt.T < 1 || opt.BatchSize > maxBatchTokens/opt.T {
		return nil, fmt.Errorf("load batches: batch size %d and sequence length %d: want both positive and at most %d tokens a batch", opt.BatchSize, opt.T, maxBatchTokens)
	}
	l := &Loader{rows: rows, opt: opt, most: 1, world: 1}
	total, shortest := 0, opt.T
	for i := range rows.Len() {
		n := rows.Length(i)
		if n == 0 || n > opt.T {
			return nil, fmt.Errorf("load batches: %s: the row has %d tokens, a sequence has %d", rows.Row(i).Where(), n, opt.T)
		}
		total, shortest = total+n, min(shortest, n)
	}
	if opt.Packing {
		// A bound on the segments keeps CuSeqlens small; four times the mean costs next to no memory.
		l.most = min(opt.T/shortest, 4*opt.T*rows.Len()/total+4)
	}
	return l, nil
}

const maxBatchTokens = 1 << 28

// Shape is B and T of every batch and the length of CuSeqlens.
func (l *Loader) Shape() (B, T, borders int) {
	return l.opt.BatchSize, l.opt.T, l.opt.BatchSize*(l.most+1) + 1
}

// Len counts the rows.
func (l *Loader) Len() int { return l.rows.Len() }

// Where names the rows of a batch, for an error about it.
func (l *Loader) Where(b Batch) []string {
	places := make([]string, len(b.Rows))
	for i, r := range b.Rows {
		places[i] = l.rows.Row(r).Where()
	}
	return places
}

// deal makes the sequences of an epoch.
func (l *Loader) deal(epoch int) [][]int32 {
	order := make([]int32, l.rows.Len())
	for i := range order {
		order[i] = int32(i)
	}
	rng := newRandom(l.opt.Seed, streamOrder, uint64(epoch))
	if l.opt.Shuffle {
		shuffle(rng, order)
	}
	if !l.opt.Packing {
		return slices.Collect(slices.Chunk(order, 1))
	}
	sequences := pack(l.rows, order, l.opt.T, l.most)
	if l.opt.Shuffle {
		shuffle(rng, sequences) // packing sorts by length; training must not
	}
	return sequences
}

func (l *Loader) batches(sequences int) int {
	return (sequences + l.opt.BatchSize - 1) / l.opt.BatchSize
}

// Batches counts the batches of an epoch. With packing and shuffling epochs may differ.
func (l *Loader) Batches(epoch int) int {
	if !l.opt.Packing {
		return l.batches(l.rows.Len())
	}
	return l.batches(len(l.deal(epoch)))
}

// Steps counts the optimizer steps of the first epochs with windows of accumulate batches a rank; the last window of an
// epoch may be smaller.
func (l *Loader) Steps(epochs, accumulate int) int {
	n, window := 0, accumulate*l.world
	for e := range epochs {
		n += (l.Batches(e) + window - 1) / window
	}
	return n
}

// Progress is how far the cursor is, in epochs.
func (l *Loader) Progress() float64 {
	if l.position == 0 {
		return float64(l.epoch)
	}
	return float64(l.epoch) + float64(l.position)/float64(l.batches(len(l.dealt())))
}

// dealt is the sequences of the epoch that the cursor is in.
func (l *Loader) dealt() [][]int32 {
	if l.sequences == nil {
		l.sequences = l.deal(l.epoch)
	}
	return l.sequences
}

// State is the cursor before the next batch.
func (l *Loader) State() State {
	if l.digest == "" {
		l.digest = digest(l.rows)
	}
	return State{
		Epoch: l.epoch, Position: l.position,
		BatchSize: l.opt.BatchSize, T: l.opt.T, Seed: l.opt.Seed, Shuffle: l.opt.Shuffle, Packing: l.opt.Packing,
		Rows: l.rows.Len(), Data: l.digest,
	}
}

// Restore moves the cursor to a state; the batches that follow are those that followed then. A state of other data or
// another order is an error that lists every difference.
func (l *Loader) Restore(s State) error {
	now := l.State()
	var problems []error
	differ := func(what string, then, now any) {
		if then != now {
			problems = append(problems, fmt.Errorf("resume the data order: %s was %v, now it is %v", what, then, now))
		}
	}
	differ("batch_size", s.BatchSize, now.BatchSize)
	differ("the sequence length", s.T, now.T)
	differ("seed", s.Seed, now.Seed)
	differ("shuffle", s.Shuffle, now.Shuffle)
	differ("packing", s.Packing, now.Packing)
	differ("the number of rows", s.Rows, now.Rows)
	if len(problems) == 0 && s.Data != now.Data {
		problems = append(problems, errors.New("resume the data order: the data or the tokenizer has changed"))
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	if s.Epoch < 0 || s.Epoch > 1<<40 {
		return fmt.Errorf("resume the data order: epoch %d does not exist", s.Epoch)
	}
	sequences := l.deal(s.Epoch)
	if n := l.batches(len(sequences)); s.Position < 0 || s.Position >= n {
		return fmt.Errorf("resume the data order: batch %d does not exist, epoch %d has %d", s.Position, s.Epoch, n)
	}
	l.epoch, l.position, l.sequences = s.Epoch, s.Position, sequences
	return nil
}

// digest is a hash over the tokens and labels of the rows.
func digest(rows Rows) string {
	h := sha256.New()
	var buf []byte
	for i := range rows.Len() {
		r := rows.Row(i)
		buf = binary.LittleEndian.AppendUint32(buf[:0], uint32(len(r.IDs)))
		for t, id := range r.IDs {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
			buf = binary.LittleEndian.AppendUint32(buf, uint32(r.Labels[t]))
		}
		h.Write(buf)
	}
	return hex.EncodeToString(h.Sum(nil))
}
