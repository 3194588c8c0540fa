package dataset

// Batch is B sequences of T tokens, row-major. Its shape is the same for every batch of a Loader: what is left over is
// padding with label Ignore.
//
// CuSeqlens are the borders of the segments over the flat B*T tokens: attention stays within a segment. A segment is a
// row or the padding behind the rows of a sequence. The array has a fixed length; its unused end repeats B*T, which
// makes segments of no tokens.
type Batch struct {
	B, T      int
	IDs       []int32 // [B,T]
	Labels    []int32 // [B,T]; Labels[t] belongs to IDs[t]
	Positions []int32 // [B,T], from 0 in each segment
	CuSeqlens []int32 // [S+1], 0 first, not falling, B*T last

	Rows          []int // the rows in it, as indices into the Loader's rows, in the order of their place
	TrainedTokens int
	Tokens        int // without padding
	Epoch         int
	Last          bool // of its epoch
}

func newBatch(B, T, borders int) Batch {
	return Batch{
		B: B, T: T,
		IDs: make([]int32, B*T), Labels: make([]int32, B*T), Positions: make([]int32, B*T),
		CuSeqlens: make([]int32, borders), Rows: make([]int, 0, B),
	}
}

// fill lays out the sequences; fewer than B leave the last ones empty.
func (b *Batch) fill(rows Rows, sequences [][]int32, pad int32) {
	segments := 0
	b.CuSeqlens[0] = 0
	border := func(at int) {
		segments++
		b.CuSeqlens[segments] = int32(at)
	}
	for s := range b.B {
		at, end := s*b.T, (s+1)*b.T
		if s < len(sequences) {
			for _, i := range sequences[s] {
				row := rows.Row(int(i))
				copy(b.IDs[at:end], row.IDs)
				copy(b.Labels[at:end], row.Labels)
				count(b.Positions[at : at+len(row.IDs)])
				at += len(row.IDs)
				border(at)
				b.Rows = append(b.Rows, int(i))
				b.TrainedTokens += row.Trained()
				b.Tokens += len(row.IDs)
			}
		}
		if at == end {
			continue
		}
		count(b.Positions[at:end])
		for ; at < end; at++ {
			b.IDs[at], b.Labels[at] = pad, Ignore
		}
		border(end)
	}
	for i := segments + 1; i < len(b.CuSeqlens); i++ {
		b.CuSeqlens[i] = int32(b.B * b.T)
	}
}

func count(positions []int32) {
	for t := range positions {
		positions[t] = int32(t)
	}
}
