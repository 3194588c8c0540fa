package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Options are the settings of a Loader.
type Options struct {
	BatchSize int // rows of a batch; with Packing, packed sequences
	T         int // the most tokens of a row, all its sequences together; with Packing, tokens of a packed sequence
	PadID     int32
	Seed      uint64
	Shuffle   bool
	Packing   bool // put several rows into one sequence
	Padded    bool // pad every row to T: the worst case
	Longest   int  // tokens of the longest sequence of a row; 0 = T
	Group     int  // Group is the most sequences of a row. NewLoader counts them; for a stream the caller sets it.
	// Prefixes says that the sequences of rows may continue a prefix. NewLoader finds out.
	Prefixes bool
	// Asked is the T of packed sequences before they were shortened because of few rows; 0 = not shortened.
	Asked int
}

// Loader deals rows in batches, epoch after epoch, every row once an epoch. The rows of a batch lie end to end in the
// smallest token budget that holds them; with Packing or Padded there is one budget, of BatchSize sequences of T
// tokens. The order depends on the seed and the epoch (and on the window of a stream), and covers all ranks of a
// data-parallel run (Shard). A Loader is not safe for concurrent use.
type Loader struct {
	from    dealer
	opt     Options
	most    int   // the most segments of a packed sequence, or of a row
	largest int   // tokens of the largest possible batch
	budgets []int // token budgets of batches, ascending

	pieces    int // pieces that a batch is dealt in; see Split
	step      int // batches of a step, which are balanced; 0 = not balanced
	tokenCost int // see Even

	rank, world int  // NextWindow and Epoch return the batches of this rank
	quiet       bool // another loader reports the ends of epochs

	at       start    // place of the current stretch
	held     *stretch // the current stretch; nil = not dealt yet
	before   float64  // fraction of the epoch before the stretch
	position int      // next batch of the stretch, counted over all ranks
}

// State is the cursor of a Loader, with the settings that must match for the cursor to mean the same batches. It is the
// same on every rank and valid for every number of ranks.
type State struct {
	Epoch int `json:"epoch"`
	// Position counts the batches of the epoch, or of a stream's window, that all ranks have taken.
	Position  int    `json:"position"`
	BatchSize int    `json:"batch_size"`
	T         int    `json:"sequence_length"`
	Seed      uint64 `json:"seed"`
	Shuffle   bool   `json:"shuffle"`
	Packing   bool   `json:"packing"`
	// Step is the number of batches of a step, which were balanced; 0 = not balanced.
	Step int `json:"step,omitempty"`
	// TokenCost is the cost per token by which batches were balanced; see Even.
	TokenCost int `json:"token_cost,omitempty"`
	// SharedPrefixes says that the prefix of a row's sequences is laid out once.
	SharedPrefixes bool `json:"shared_prefixes,omitempty"`
	Streaming      bool `json:"streaming,omitempty"`
	Rows           int  `json:"rows"` // Rows is the number of rows; 0 for a stream.
	// Data is a SHA-256 over ids and labels; for a stream, over those of its first window and the settings.
	Data   string      `json:"data"`
	Stream StreamState `json:"stream,omitzero"`
}

// TrainLoader returns a loader of the training rows as the configuration of the set says. batchSize is the number of
// rows or packed sequences of a batch.
func (s *Set) TrainLoader(batchSize int) (*Loader, error) {
	opt := s.options(batchSize)
	opt.Shuffle = s.Config.Shuffle
	if s.stream != nil {
		return s.stream.loader(opt, s.Vocab)
	}
	return NewLoader(s.Train, opt.shortened(s.Train))
}

// ValLoader returns a loader of the validation rows for evaluation, which needs only sums over rows. It packs rows into
// batches of at most the given number of tokens, unless the configuration of the set packs or pads them: then a batch
// has batchSize sequences. tokens 0 = as many as batchSize rows may have.
func (s *Set) ValLoader(batchSize, tokens int) (*Loader, error) {
	opt := s.options(batchSize)
	if opt.Packing || opt.Padded || s.Val.Len() == 0 || opt.BatchSize < 1 || opt.BatchSize > maxBatchTokens/opt.T {
		return NewLoader(s.Val, opt.shortened(s.Val)) // NewLoader rejects invalid options
	}
	if tokens == 0 {
		tokens = opt.T * opt.BatchSize
	}
	opt.BatchSize, opt.T, opt.Packing = 1, min(max(tokens, opt.T), max(maxEvalTokens, opt.T)), true
	return NewLoader(s.Val, opt.evenly(s.Val))
}

// maxEvalTokens bounds the tokens of an evaluation batch, and with them the memory of packing.
const maxEvalTokens = 1 << 20

// evenly returns the options with the fewest tokens a batch that need no more batches.
func (o Options) evenly(rows Rows) Options {
	batches := func(T int) int {
		try := o
		try.T = T
		l, err := NewLoader(rows, try)
		if err != nil {
			return 0 // NewLoader reports the error for o too
		}
		return l.Batches(0)
	}
	n := batches(o.T)
	if n == 0 || n > evenBatches {
		return o
	}
	least, most := (max(o.Longest, sizesOf(rows).row)+7)/8, (o.T+7)/8
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

// evenBatches is the number of batches from which on the unused part of the last batch is negligible.
const evenBatches = 64

func (s *Set) options(batchSize int) Options {
	sizes := sizesOf(s.Train, s.Val)
	o := Options{
		BatchSize: batchSize, PadID: s.PadID, Seed: s.Config.Seed, Packing: s.Config.Packing,
		Padded: !s.Config.Packing &&
			s.Config.PadTo == PadMaxLength, Longest: s.sequenceLength(sizes), Group: sizes.most,
	}
	switch o.T = o.Longest; {
	case sizes.most == 1:
	case o.Padded || s.stream != nil: // the longest possible row
		o.T *= sizes.whole
	default:
		o.T = max(o.T, (sizes.row+7)/8*8)
	}
	return o
}

// SequenceLength returns the most tokens of a sequence in both loaders. It is MaxLength, or less for packed sequences
// that were shortened because of few rows. Without packing and padding it is the longest row of a set that is not a
// stream, rounded up to a multiple of 8 if the model has that many positions.
func (s *Set) SequenceLength() int {
	return s.sequenceLength(sizesOf(s.Train, s.Val))
}

func (s *Set) sequenceLength(sizes groupSizes) int {
	if s.Config.Packing || s.Config.PadTo == PadMaxLength || s.stream != nil {
		return s.Config.MaxLength
	}
	rounded := min((sizes.longest+7)/8*8, s.Config.MaxLength)
	if s.Positions > 0 {
		rounded = max(sizes.longest, min(rounded, s.Positions))
	}
	return rounded
}

// check rejects batches of no size or an unreasonable one.
func (o Options) check() error {
	if o.BatchSize < 1 || o.T < 1 || o.BatchSize > maxBatchTokens/o.T {
		return fmt.Errorf("load batches: batch size %d and sequence length %d: want both positive and at most %d "+
			"tokens a batch", o.BatchSize, o.T, maxBatchTokens)
	}
	return nil
}

// NewLoader returns a loader after checking that the rows fit the options. A loader of rows end to end has one budget,
// for the largest possible batch, until ChooseBudgets.
func NewLoader(rows Rows, opt Options) (*Loader, error) {
	if rows.Len() == 0 {
		return nil, errors.New("load batches: there are no rows")
	}
	if err := opt.check(); err != nil {
		return nil, err
	}
	if opt.Longest == 0 {
		opt.Longest = opt.T
	}
	tokens := 0
	for i := range rows.Len() {
		if err := opt.checkRow(rows, i); err != nil {
			return nil, err
		}
		tokens += rows.Length(i)
	}
	sizes := sizesOf(rows)
	opt.Group = sizes.most
	_, opt.Prefixes = rows.(sharing)
	whole := &epochs{rows: rows, opt: opt, most: sizes.most, tokens: tokens}
	if opt.Packing {
		// A bound on the segments keeps CuSeqlens small. Four times the mean costs next to no memory.
		whole.most = max(sizes.most, min(opt.T/sizes.shortest, 4*opt.T*sizes.sequences/tokens+4))
	}
	largest := opt.BatchSize * opt.T
	if opt.flat() {
		largest = opt.largest(rows)
	}
	return newLoader(whole, opt, whole.most, largest), nil
}

// checkRow rejects a row that is too long for the options.
func (o Options) checkRow(rows Rows, i int) error {
	n, borders, most := rows.Length(i), bordersOf(rows, i), min(o.T, o.Longest)
	bad := func(format string, args ...any) error {
		return fmt.Errorf("load batches: %s: %w", rows.Row(i).Where(), fmt.Errorf(format, args...))
	}
	if borders == nil && (n == 0 || n > most) {
		return bad("the row has %d tokens, a sequence has %d", n, most)
	}
	if err := checkGroup(borders, n); err != nil {
		return bad("%w", err)
	}
	prefix := prefixOf(rows, i)
	for k := range len(borders) + 1 {
		if from, to := sequenceSpan(borders, k, n); to-from > most || k > 0 && prefix+to-from > o.Longest {
			return bad("sequence %d of the row has %d tokens, a sequence has %d", k+1, to-from, most)
		}
	}
	if n > o.T {
		return bad("the %d sequences of the row have %d tokens, and room for %d", len(borders)+1, n, o.T)
	}
	return nil
}

func newLoader(from dealer, opt Options, most, largest int) *Loader {
	return &Loader{from: from, opt: opt, most: most, largest: largest, pieces: 1, world: 1, budgets: []int{largest}}
}

const maxBatchTokens = 1 << 28

// Shape holds the sizes that all batches of a Loader have in common.
type Shape struct {
	Sequences int   // B of [B,T] with Packing or Padded, else the rows of a batch
	T         int   // tokens of a packed sequence, or of the longest row, all its sequences together
	Budgets   []int // token budgets, ascending: every batch is as long as one of them
	Borders   int   // length of CuSeqlens
	Longest   int   // the most tokens of a segment, with those of the segment that it continues
	Flat      bool  // rows lie end to end
	Prefixes  bool  // segments may continue others
}

// Shape returns the sizes that all batches have in common.
func (l *Loader) Shape() Shape {
	dealt := l.dealt()
	s := Shape{Sequences: dealt.BatchSize, T: l.opt.T, Budgets: l.budgets, Longest: l.opt.Longest, Flat: l.opt.flat(),
		Prefixes: l.opt.Prefixes}
	padding := (l.opt.T + s.Longest - 1) / s.Longest // the most segments of padding in a sequence
	if !s.Flat {
		s.Borders = dealt.BatchSize*(l.most+padding) + 1
		return s
	}
	widest, below := 0, 0 // a batch in a budget is larger than the next smaller budget
	for _, b := range l.budgets {
		widest, below = max(widest, b-below), b
	}
	s.Borders = dealt.BatchSize*l.most + (widest+s.Longest-1)/s.Longest + 1
	return s
}

// Split makes NextWindow deal every batch in the given number of pieces of equal size, one after the other: the same
// rows in less memory. A step of n batches then has up to n times as many micro-batches; the cursor still counts
// batches. Afterwards the loader has one budget until ChooseBudgets. pieces must divide the batch size.
func (l *Loader) Split(pieces int) error {
	if pieces < 1 || l.opt.BatchSize%pieces != 0 {
		return fmt.Errorf("split batches of %d rows: %d pieces do not divide them", l.opt.BatchSize, pieces)
	}
	l.pieces = pieces
	dealt := l.dealt()
	l.largest = dealt.BatchSize * dealt.T
	if e, ok := l.from.(*epochs); ok && dealt.flat() {
		l.largest = dealt.largest(e.rows)
	}
	l.budgets = []int{l.largest}
	l.evenHeld()
	return nil
}

// dealt returns the options with the size of a piece as the batch size.
func (l *Loader) dealt() Options {
	o := l.opt
	o.BatchSize /= l.pieces
	return o
}

// Len returns the number of rows, 0 for a stream.
func (l *Loader) Len() int { return l.from.len() }

// Batches returns the number of whole batches of an epoch, or of a stream's first window. With packing and shuffling,
// epochs may have different numbers.
func (l *Loader) Batches(epoch int) int {
	if n := l.from.len(); n > 0 && !l.opt.Packing {
		return l.opt.batches(n)
	}
	return l.opt.batches(l.preview(epoch).dealt.len())
}

// Steps returns the number of optimizer steps of the first epochs of a set, with windows of accumulate batches a rank.
// The last window of an epoch may be smaller.
func (l *Loader) Steps(epochs, accumulate int) int {
	n, window := 0, accumulate*l.world
	for e := range epochs {
		n += (l.Batches(e) + window - 1) / window
	}
	return n
}

// Progress returns the position of the cursor in epochs. In a stream it is measured by the bytes of the files.
func (l *Loader) Progress() float64 {
	if l.held == nil || l.position == 0 {
		return float64(l.at.epoch) + l.before
	}
	s := l.held
	return float64(l.at.epoch) + s.from + (s.to-s.from)*float64(l.position)/float64(l.opt.batches(s.dealt.len()))
}

// preview returns the stretch that stands for an epoch before it is dealt. The current stretch of the cursor is reused.
func (l *Loader) preview(epoch int) *stretch {
	if l.held != nil && l.held.whole && l.held.epoch == epoch {
		return l.held
	}
	s := l.evened(l.from.preview(epoch))
	if s.whole && l.held == nil && l.at.epoch == epoch {
		l.held = s
	}
	return s
}

// stretch returns the current stretch of the cursor and deals it if necessary.
func (l *Loader) stretch() (*stretch, error) {
	if l.held == nil {
		s, err := l.from.deal(l.at)
		if err != nil {
			return nil, err
		}
		l.held = l.evened(s)
	}
	return l.held, nil
}

// Close stops reading ahead in a stream. The Loader of a set needs no Close.
func (l *Loader) Close() { l.from.close() }

// State returns the cursor before the next batch.
func (l *Loader) State() State {
	rows, data := l.from.data()
	return State{
		Epoch: l.at.epoch, Position: l.position, Stream: l.at.in,
		BatchSize: l.opt.BatchSize, T: l.opt.T, Seed: l.opt.Seed, Shuffle: l.opt.Shuffle, Packing: l.opt.Packing,
		Step: l.step, TokenCost: l.tokenCost, SharedPrefixes: l.opt.Prefixes,
		Streaming: rows == 0, Rows: rows, Data: data,
	}
}

// Restore moves the cursor to a state, so that the same batches follow. A state of other data or another order is an
// error that lists every difference.
func (l *Loader) Restore(s State) error {
	now := l.State()
	var problems []error
	differ := func(what string, then, now any) {
		if then != now {
			problems = append(problems, fmt.Errorf("resume the data order: %s was %v, now it is %v", what, then, now))
		}
	}
	if s.Streaming != now.Streaming {
		return fmt.Errorf("resume the data order: dataset.streaming was %v, now it is %v", s.Streaming, now.Streaming)
	}
	differ("batch_size", s.BatchSize, now.BatchSize)
	if s.SharedPrefixes != now.SharedPrefixes {
		share := map[bool]string{false: "no", true: "yes"}
		return fmt.Errorf("resume the data order: training.share_prompts was %s, now it is %s",
			share[s.SharedPrefixes], share[now.SharedPrefixes])
	}
	if !l.sameRows(s) {
		differ("the sequence length", s.T, now.T)
	}
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
	if s.Epoch < 0 || s.Epoch > maxEpoch {
		return fmt.Errorf("resume the data order: epoch %d does not exist", s.Epoch)
	}
	dealt, err := l.from.deal(start{s.Epoch, s.Stream})
	if err != nil {
		return fmt.Errorf("resume the data order: %w", err)
	}
	if n := l.opt.batches(dealt.dealt.len()); s.Position < 0 || s.Position >= n {
		return fmt.Errorf("resume the data order: batch %d does not exist, epoch %d has %d", s.Position, s.Epoch, n)
	}
	if (s.Step != now.Step || s.TokenCost != now.TokenCost) && (s.Position%max(s.Step, 1) != 0 ||
		s.Position%max(now.Step, 1) != 0) {
		return fmt.Errorf("resume the data order: batch %d of epoch %d is not the first of its step, and steps of %d "+
			"batches were made even with a token cost of %d, now %d with %d: resume with the program and the steps "+
			"that wrote the checkpoint", s.Position, s.Epoch, s.Step, s.TokenCost, now.Step, now.TokenCost)
	}
	l.at, l.position, l.held, l.before = dealt.start, s.Position, l.evened(dealt), dealt.from
	return nil
}

// maxEpoch bounds the epoch of a State.
const maxEpoch = 1 << 40

// digest returns a hash over the tokens and labels of the rows. A store recorded its digest when it was written.
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
		buf = appendWeights(appendGroup(buf, r.Borders, r.Desirable), r.Weights)
		buf = r.Rollout.append(buf)
		buf = appendTargets(buf, r.Targets)
		h.Write(buf)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// appendGroup appends the boundaries of a group and the label of a row to the digest's input. Its first number is
// larger than any length, with which the next row begins.
func appendGroup(buf []byte, borders []int32, label Desirability) []byte {
	if borders == nil && label == Unlabelled {
		return buf
	}
	buf = binary.LittleEndian.AppendUint32(buf, 1<<31|uint32(len(borders)))
	for _, border := range borders {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(border))
	}
	return binary.LittleEndian.AppendUint32(buf, uint32(int32(label)))
}
