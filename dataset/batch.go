package dataset

// Batch is rows end to end, in an array of tokens as long as one of its Loader's budgets. What the rows leave is
// padding with label Ignore.
//
// CuSeqlens are the borders of the segments: attention stays within a segment. A segment is a sequence of a row, or
// padding, and never longer than Shape.Longest. The array has the same length in every batch of a Loader; its unused
// end repeats the number of tokens, which makes segments of no tokens.
type Batch struct {
	IDs       []int32 // [M], M is a budget
	Labels    []int32 // [M]; Labels[t] belongs to IDs[t]
	Positions []int32 // [M], from 0 in each segment
	CuSeqlens []int32 // [S+1], 0 first, not falling, M last
	Real      []int32 // [M], 1 where there is a row's token, 0 where there is padding; nil = there is none

	// Rows are the rows in it, as indices into the set's rows or those of a stream's window, in the order of their place.
	Rows   []int
	Starts []int // the first token of each of Rows
	// Groups are the offsets of the rows' sequences: row k of Rows has the sequences Groups[k] to Groups[k+1]-1 of the
	// batch. [len(Rows)+1]; nil = every row is one sequence.
	Groups []int32
	// Segments are the segments in which the sequences lie, by which CuSeqlens tells their tokens. nil where Groups is
	// nil; the method Sequences returns both for every batch.
	Segments []int32
	// Desirable is the label of each of Rows; nil = no row has one.
	Desirable     []Desirability
	TrainedTokens int
	Tokens        int // without padding
	Epoch         int
	Last          bool // of its epoch

	of Rows
}

// Where names the rows of a batch, for an error about it.
func (b Batch) Where() []string {
	places := make([]string, len(b.Rows))
	for i, r := range b.Rows {
		places[i] = b.of.Row(r).Where()
	}
	return places
}

// Length is the number of tokens of the row in place k of Rows.
func (b Batch) Length(k int) int { return b.of.Length(b.Rows[k]) }

// Borders returns where the second and each further sequence of the row in place k of Rows begins, counted from the
// row's first token; nil = the row is one sequence.
func (b Batch) Borders(k int) []int32 { return bordersOf(b.of, b.Rows[k]) }

// Row is the token ids and labels of the row in place k of Rows.
func (b Batch) Row(k int) (ids, labels []int32) {
	from, to := b.Starts[k], b.Starts[k]+b.Length(k)
	return b.IDs[from:to], b.Labels[from:to]
}

func newBatch(tokens, borders, rows int) Batch {
	return Batch{
		IDs: make([]int32, tokens), Labels: make([]int32, tokens), Positions: make([]int32, tokens),
		CuSeqlens: make([]int32, borders), Real: make([]int32, tokens), Rows: make([]int, 0, rows), Starts: make([]int, 0, rows),
	}
}

// fill lays out sequences of T tokens; fewer than the batch has room for leave the last ones empty. Padding comes in
// segments of at most longest tokens.
func (b *Batch) fill(sequences [][]int32, T, longest int, pad int32) {
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
				start := at
				for k := range row.Sequences() {
					from, to := sequenceSpan(row.Borders, k, len(row.IDs))
					count(b.Positions[at : at+to-from])
					for range to - from {
						b.Real[at] = 1
						at++
					}
					border(at)
				}
				b.placeGroup(row, segments-1)
				b.Rows, b.Starts = append(b.Rows, int(i)), append(b.Starts, start)
				b.placeLabel(row.Desirable)
				b.TrainedTokens += b.of.Trained(int(i))
				b.Tokens += len(row.IDs)
			}
		}
		for at < end {
			next := min(at+longest, end)
			count(b.Positions[at:next])
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

func count(positions []int32) {
	for t := range positions {
		positions[t] = int32(t)
	}
}
