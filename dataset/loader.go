package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Options of a Loader.
type Options struct {
	BatchSize int // rows of a batch; with Packing or Padded, sequences
	T         int // tokens a row may have; with Packing or Padded, tokens of a sequence
	PadID     int32
	Seed      uint64
	Shuffle   bool
	Packing   bool // several rows in a sequence
	Padded    bool // every row is a sequence, padded to T: the worst case
	Longest   int  // tokens of the longest row; 0 = T
}

// Loader deals rows in batches, epoch after epoch, every row once an epoch. The rows of a batch lie end to end in the
// smallest token budget that holds them; with Packing or Padded there is one budget, of BatchSize sequences of T tokens.
// The order is a function of the seed and the epoch, over all ranks of a data-parallel run (Shard). It is not safe for
// concurrent use.
type Loader struct {
	rows     Rows
	opt      Options
	most     int   // rows a sequence may hold
	shortest int   // tokens of the shortest row
	total    int   // tokens of all rows
	budgets  []int // tokens of a batch, ascending
	digest   string

	rank, world int // which of how many shares NextWindow and Epoch give

	epoch    int
	position int        // the next batch of the epoch, whichever rank takes it
	order    *sequences // of the epoch; nil = not dealt yet
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

// TrainLoader deals the training rows as the set's config says, batchSize rows or packed sequences a batch.
func (s *Set) TrainLoader(batchSize int) (*Loader, error) {
	opt := s.options(batchSize)
	opt.Shuffle = s.Config.Shuffle
	return NewLoader(s.Train, opt)
}

// ValLoader deals the validation rows for evaluation, where only sums over rows count: packed into batches of at most
// so many tokens, or as the set's config packs or pads them, batchSize sequences a batch. tokens 0 = as many as batchSize
// rows may have.
func (s *Set) ValLoader(batchSize, tokens int) (*Loader, error) {
	opt := s.options(batchSize)
	if opt.Packing || opt.Padded || s.Val.Len() == 0 || opt.BatchSize < 1 || opt.BatchSize > maxBatchTokens/opt.T {
		return NewLoader(s.Val, opt) // which refuses what cannot be
	}
	if tokens == 0 {
		tokens = opt.T * opt.BatchSize
	}
	opt.BatchSize, opt.T, opt.Packing = 1, min(max(tokens, opt.T), max(maxEvalTokens, opt.T)), true
	return NewLoader(s.Val, opt.evenly(s.Val))
}

// maxEvalTokens bounds the tokens of an evaluation's batch, and with them the memory that packing takes.
const maxEvalTokens = 1 << 20

// evenly is the same with as few tokens a batch as give no more batches.
func (o Options) evenly(rows Rows) Options {
	batches := func(T int) int {
		try := o
		try.T = T
		l, err := NewLoader(rows, try)
		if err != nil {
			return 0 // NewLoader reports it for o too
		}
		return l.Batches(0)
	}
	n := batches(o.T)
	if n == 0 || n > evenBatches {
		return o
	}
	least, most := (o.Longest+7)/8, (o.T+7)/8
	for least < most {
		if middle := (least + most) / 2; batches(8*middle) <= n {
			most = middle
		} else {
			least = middle + 1
		}
	}
	o.T = min(8*most, o.T)
	return o
}

// evenBatches: from so many batches on, what the last one leaves empty is next to nothing.
const evenBatches = 64

func (s *Set) options(batchSize int) Options {
	T := s.SequenceLength()
	return Options{
		BatchSize: batchSize, T: T, PadID: s.PadID, Seed: s.Config.Seed,
		Packing: s.Config.Packing, Padded: !s.Config.Packing && s.Config.PadTo == PadMaxLength, Longest: T,
	}
}

// SequenceLength is T of both loaders: MaxLength, or without packing and padding the longest row of the set rounded up
// to 8.
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

// NewLoader checks that the rows fit the options. A loader of rows end to end has one budget, for the largest batch that
// there could be, until ChooseBudgets.
func NewLoader(rows Rows, opt Options) (*Loader, error) {
	if rows.Len() == 0 {
		return nil, errors.New("load batches: there are no rows")
	}
	if opt.BatchSize < 1 || opt.T < 1 || opt.BatchSize > maxBatchTokens/opt.T {
		return nil, fmt.Errorf("load batches: batch size %d and sequence length %d: want both positive and at most %d tokens a batch", opt.BatchSize, opt.T, maxBatchTokens)
	}
	if opt.Longest == 0 {
		opt.Longest = opt.T
	}
	l := &Loader{rows: rows, opt: opt, most: 1, world: 1, shortest: opt.T}
	for i := range rows.Len() {
		n := rows.Length(i)
		if n == 0 || n > min(opt.T, opt.Longest) {
			return nil, fmt.Errorf("load batches: %s: the row has %d tokens, a sequence has %d", rows.Row(i).Where(), n, min(opt.T, opt.Longest))
		}
		l.total, l.shortest = l.total+n, min(l.shortest, n)
	}
	if opt.Packing {
		// A bound on the segments keeps CuSeqlens small; four times the mean costs next to no memory.
		l.most = min(opt.T/l.shortest, 4*opt.T*rows.Len()/l.total+4)
	}
	l.budgets = []int{opt.BatchSize * opt.T}
	if l.flat() {
		l.budgets = []int{l.largest()}
	}
	return l, nil
}

const maxBatchTokens = 1 << 28

// flat tells whether the rows of a batch lie end to end.
func (l *Loader) flat() bool { return !l.opt.Packing && !l.opt.Padded }

// Shape is what is the same in all batches of a Loader.
type Shape struct {
	Sequences int   // B of [B,T] with Packing or Padded, else the rows of a batch
	T         int   // tokens of a sequence, or of the longest row
	Budgets   []int // tokens of a batch, ascending: every batch is as long as one of them
	Borders   int   // length of CuSeqlens
	Longest   int   // no segment has more tokens
	Flat      bool  // rows lie end to end
}

// Shape is what is the same in all batches.
func (l *Loader) Shape() Shape {
	s := Shape{Sequences: l.opt.BatchSize, T: l.opt.T, Budgets: l.budgets, Longest: l.opt.Longest, Flat: l.flat()}
	padding := (l.opt.T + s.Longest - 1) / s.Longest // segments of padding in a sequence, at most
	if !s.Flat {
		s.Borders = l.opt.BatchSize*(l.most+padding) + 1
		return s
	}
	widest, below := 0, 0 // a batch in a budget is larger than the budget below
	for _, b := range l.budgets {
		widest, below = max(widest, b-below), b
	}
	s.Borders = l.opt.BatchSize + (widest+s.Longest-1)/s.Longest + 1
	return s
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
func (l *Loader) deal(epoch int) sequences {
	order := upTo(l.rows.Len())
	rng := newRandom(l.opt.Seed, streamOrder, uint64(epoch))
	if l.opt.Shuffle {
		shuffle(rng, order)
	}
	if !l.opt.Packing {
		return sequences{rows: order}
	}
	dealt := pack(l.rows, order, l.opt.T, l.most)
	if l.opt.Shuffle {
		return dealt.shuffled(rng) // packing sorts by length; training must not
	}
	return dealt
}

func (l *Loader) batches(sequences int) int {
	return (sequences + l.opt.BatchSize - 1) / l.opt.BatchSize
}

// Batches counts the batches of an epoch. With packing and shuffling epochs may differ.
func (l *Loader) Batches(epoch int) int {
	if !l.opt.Packing {
		return l.batches(l.rows.Len())
	}
	return l.batches(l.sequences(epoch).len())
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
	return float64(l.epoch) + float64(l.position)/float64(l.batches(l.dealt().len()))
}

// sequences are those of an epoch; those of the cursor's are kept.
func (l *Loader) sequences(epoch int) sequences {
	if epoch == l.epoch {
		return l.dealt()
	}
	return l.deal(epoch)
}

// dealt is the sequences of the epoch that the cursor is in.
func (l *Loader) dealt() sequences {
	if l.order == nil {
		dealt := l.deal(l.epoch)
		l.order = &dealt
	}
	return *l.order
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
	dealt := l.deal(s.Epoch)
	if n := l.batches(dealt.len()); s.Position < 0 || s.Position >= n {
		return fmt.Errorf("resume the data order: batch %d does not exist, epoch %d has %d", s.Position, s.Epoch, n)
	}
	l.epoch, l.position, l.order = s.Epoch, s.Position, &dealt
	return nil
}

// digest is a hash over the tokens and labels of the rows. A store knows its own since it was written.
func digest(rows Rows) string {
	if d, ok := rows.(digested); ok {
		if known, ok := d.Digest(); ok {
			return known
		}
	}
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
