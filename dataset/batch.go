package dataset

// Batch holds rows end to end in one array of M tokens, where M is one of the Loader's token budgets. Tokens that
// belong to no row are padding, with label Ignore.
//
// CuSeqlens holds the segment boundaries; attention stays within a segment. A segment is one sequence of a row, or
// padding, and never longer than Shape.Longest. CuSeqlens has the same length in every batch of a Loader: its unused
// end repeats M, which makes segments of zero tokens.
type Batch struct {
	IDs       []int32 // [M] token ids; M is a budget
	Labels    []int32 // [M] labels; Labels[t] belongs to IDs[t]
	Positions []int32 // [M] positions, from 0 in each segment that continues no other
	CuSeqlens []int32 // [S+1] segment boundaries: 0 first, never falling, M last
	Real      []int32 // [M] 1 for a token of a row, 0 for padding; nil = there is no padding

	// Rows are the batch's rows in the order of their tokens, as indices into the set's rows or into the rows of a
	// stream's window.
	Rows   []int
	Starts []int // Starts[k] is the first token of row Rows[k]
	// Groups are offsets into the list of sequences: row Rows[k] has the sequences Groups[k] to Groups[k+1]-1 of the
	// batch. [len(Rows)+1]; nil = every row is one sequence.
	Groups []int32
	// Segments gives the segment of each sequence; CuSeqlens gives the segment's tokens. nil where Groups is nil; the
	// method Sequences returns both for every batch.
	Segments []int32
	// Prefixes [S] gives for each segment the segment that it continues: its tokens follow that segment's as if they
	// came right behind them. -1 = it continues none; nil = no segment continues another.
	Prefixes []int32
	// Desirable[k] is the label of row Rows[k]; nil = no row has a label.
	Desirable []Desirability
	// Weights [M] are the factors of the tokens' losses, Weights[t] that of Labels[t]; nil = all are one.
	Weights []float32
	// Rollouts [len(Rows)] are what is known of the sampled answers of each row; nil = rows are none, or TakeRollouts was
	// not called.
	Rollouts []*Rollout
	// Images are the images of the rows that have some, in order; nil = no row has any.
	Images []PlacedImages
	// Pad is the token id of padding.
	Pad int32
	// Targets [n] are Row.Targets of all rows, one row's after another's; row Rows[k] has TargetEnds[k-1] to
	// TargetEnds[k]-1 of them. nil = no row has targets.
	Targets       []float32
	TargetEnds    []int32
	TrainedTokens int
	Tokens        int // tokens of rows, without padding
	Epoch         int
	Last          bool // the last batch of its epoch

	of Rows
}

// Where names the places of the batch's rows in their files, for error messages.
func (b Batch) Where() []string {
	places := make([]string, len(b.Rows))
	for i, r := range b.Rows {
		places[i] = b.of.Row(r).Where()
	}
	return places
}

// Length returns the number of tokens of row Rows[k].
func (b Batch) Length(k int) int { return b.of.Length(b.Rows[k]) }

// Borders returns the tokens at which the second and each further sequence of row Rows[k] begins, counted from the
// row's first token; nil = the row is one sequence.
func (b Batch) Borders(k int) []int32 { return bordersOf(b.of, b.Rows[k]) }

// SharesPrefix reports whether the first sequence of row Rows[k] is the prefix of the others.
func (b Batch) SharesPrefix(k int) bool { return prefixOf(b.of, b.Rows[k]) > 0 }

// Row returns the token ids and labels of row Rows[k].
func (b Batch) Row(k int) (ids, labels []int32) {
	from, to := b.Starts[k], b.Starts[k]+b.Length(k)
	return b.IDs[from:to], b.Labels[from:to]
}

func newBatch(tokens, borders, rows int) Batch {
	return Batch{
		IDs: make([]int32, tokens), Labels: make([]int32, tokens), Positions: make([]int32, tokens),
		CuSeqlens: make([]int32, borders), Real: make([]int32, tokens), Rows: make([]int, 0, rows), Starts: make([]int,
			0,
			rows),
	}
}

// fill lays out sequences of T tokens each. If there are fewer sequences than the batch has room for, the last ones are
// empty. Padding is divided into segments of at most longest tokens.
func (b *Batch) fill(sequences [][]int32, T, longest int, pad int32) {
	b.Pad = pad
	segments := 0
	border := func(at int) {
		segments++
		b.CuSeqlens[segments] = int32(at)
	}
	for s := range len(b.IDs) / T {
		at, end := s*T, (s+1)*T
		if s < len(sequences) {
			for _, i := range sequences[s] {
				row := b.of.Row(int(i))
				copy(b.IDs[at:end], row.IDs)
				copy(b.Labels[at:end], row.Labels)
				b.placeWeights(row, at)
				start := at
				for k := range row.Sequences() {
					from, to := sequenceSpan(row.Borders, k, len(row.IDs))
					count(b.Positions[at:at+to-from], row.prefixBefore(k))
					for range to - from {
						b.Real[at] = 1
						at++
					}
					border(at)
				}
				b.placeGroup(row, segments-1)
				b.Rows, b.Starts = append(b.Rows, int(i)), append(b.Starts, start)
				b.placeLabel(row.Desirable)
				b.placeTargets(row)
				if row.Images != nil {
					b.Images = append(b.Images, PlacedImages{len(b.Rows) - 1, row.Images})
				}
				b.TrainedTokens += b.of.Trained(int(i))
				b.Tokens += len(row.IDs)
			}
		}
		for at < end {
			next := min(at+longest, end)
			count(b.Positions[at:next], 0)
			for ; at < next; at++ {
				b.IDs[at], b.Labels[at] = pad, Ignore
			}
			border(at)
		}
	}
	for i := segments + 1; i < len(b.CuSeqlens); i++ {
		b.CuSeqlens[i] = int32(len(b.IDs))
	}
}

// count writes positions that follow one another, from a first one on.
func count(positions []int32, first int) {
	for t := range positions {
		positions[t] = int32(first + t)
	}
}
