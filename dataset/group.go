package dataset

import "fmt"

// A row of a data set is a group: one sequence, or several that stay together, such as the chosen and the rejected
// answer of a preference pair. A group is dealt, packed, cached and counted as one row, so it is never divided between
// micro-batches, ranks, packed sequences or steps. A group of one sequence is an ordinary row.

// MaxSequences is the most sequences of a row.
const MaxSequences = 1024

// Desirability is the label of an unpaired preference row (KTO): the answer is one to learn or one to avoid. The zero
// value means that the row has no label.
type Desirability int8

// Values of Desirability.
const (
	Unlabelled  Desirability = 0
	Desirable   Desirability = 1
	Undesirable Desirability = -1
)

// String returns the label's name in reports; "" without a label.
func (d Desirability) String() string {
	switch d {
	case Desirable:
		return "desirable"
	case Undesirable:
		return "undesirable"
	}
	return ""
}

// grouped is an optional capability of Rows: rows may have several sequences.
type grouped interface {
	// Borders returns Row.Borders of row i without reading its tokens.
	Borders(i int) []int32
}

// bordersOf returns Row.Borders of row i, nil for a row of one sequence, without reading its tokens.
func bordersOf(rows Rows, i int) []int32 {
	if g, ok := rows.(grouped); ok {
		return g.Borders(i)
	}
	return nil
}

// Borders returns Row.Borders of row i.
func (m Memory) Borders(i int) []int32 { return m[i].Borders }

// Borders returns Row.Borders of row i.
func (v joined) Borders(i int) []int32 {
	rows, i := v.at(i)
	return bordersOf(rows, i)
}

// Borders returns Row.Borders of row i.
func (s selected) Borders(i int) []int32 { return bordersOf(s.rows, int(s.indices[i])) }

// Borders returns Row.Borders of row i.
func (s subset) Borders(i int) []int32 { return bordersOf(s.rows, s.at(i)) }

// Sequences counts the sequences of the row.
func (r Row) Sequences() int { return len(r.Borders) + 1 }

// Sequence returns the token ids and labels of sequence k of the row, from 0.
func (r Row) Sequence(k int) (ids, labels []int32) {
	from, to := sequenceSpan(r.Borders, k, len(r.IDs))
	return r.IDs[from:to], r.Labels[from:to]
}

// sequenceSpan returns the half-open range of tokens of sequence k in a row of n tokens.
func sequenceSpan(borders []int32, k, n int) (from, to int) {
	if k > 0 {
		from = int(borders[k-1])
	}
	if k < len(borders) {
		n = int(borders[k])
	}
	return from, n
}

// sequenceLengths yields the number of tokens of each sequence of row i.
func sequenceLengths(rows Rows, i int) func(yield func(tokens int) bool) {
	return func(yield func(tokens int) bool) {
		from := 0
		for _, border := range bordersOf(rows, i) {
			if !yield(int(border) - from) {
				return
			}
			from = int(border)
		}
		yield(rows.Length(i) - from)
	}
}

// groupSizes holds the sizes of the rows' groups that a batch layout depends on.
type groupSizes struct {
	sequences int // sequences of all rows
	most      int // the most sequences of a row, a prefix included, at least 1
	whole     int // the most sequences of a row without its prefix, at least 1
	row       int // tokens of the longest row
	longest   int // tokens of the longest sequence, those of the prefix that it continues included
	shortest  int // tokens of the shortest sequence, 0 without rows
}

// sizesOf measures the groups of all rows.
func sizesOf(all ...Rows) groupSizes {
	s := groupSizes{most: 1, whole: 1}
	for _, rows := range all {
		for i := range rows.Len() {
			s.row = max(s.row, rows.Length(i))
			n, before := 0, 0 // before are the tokens of the prefix that a sequence continues; the prefix continues none
			for tokens := range sequenceLengths(rows, i) {
				n++
				s.longest = max(s.longest, before+tokens)
				before = prefixOf(rows, i)
				if s.shortest == 0 || tokens < s.shortest {
					s.shortest = tokens
				}
			}
			s.sequences, s.most, s.whole = s.sequences+n, max(s.most, n), max(s.whole, sequencesOf(rows, i))
		}
	}
	return s
}

// checkGroup rejects borders that are invalid for a row of n tokens.
func checkGroup(borders []int32, n int) error {
	if len(borders) >= MaxSequences {
		return fmt.Errorf("the row has %d sequences, more than %d", len(borders)+1, MaxSequences)
	}
	before := int32(0)
	for _, border := range borders {
		if border <= before || int(border) >= n {
			const text = "sequences begin at the tokens %v of a row of %d tokens: want them rising, above 0 and " +
				"below %d"
			return fmt.Errorf(text, borders, n, n)
		}
		before = border
	}
	return nil
}

// Sequences returns where the sequences of a batch lie. Row Rows[k] has the sequences groups[k] to groups[k+1]-1.
// Sequence s is the segment segments[s], whose tokens are CuSeqlens[segments[s]] to CuSeqlens[segments[s]+1]-1. The
// prefix that the sequences of a row share is a segment (Prefixes) and none of its sequences. The slices are
// [len(Rows)+1] and [sequences].
func (b Batch) Sequences() (groups, segments []int32) {
	if b.Groups != nil {
		return b.Groups, b.Segments
	}
	segment := 0
	for _, start := range b.Starts {
		for int(b.CuSeqlens[segment]) < start {
			segment++
		}
		segments = append(segments, int32(segment))
	}
	return upTo(len(b.Rows) + 1), segments
}

// Count returns the number of sequences of the batch.
func (b Batch) Count() int {
	if b.Groups != nil {
		return len(b.Segments)
	}
	return len(b.Rows)
}

// placeGroup records the sequences of the row that fill has just laid out; last is the segment of the row's last
// sequence.
func (b *Batch) placeGroup(row Row, last int) {
	n := row.Sequences()
	if row.Prefix {
		n--
		b.placePrefix(last, n)
	}
	if b.Groups == nil && n == 1 && !row.Prefix {
		return
	}
	if b.Groups == nil {
		b.Groups, b.Segments = b.Sequences() // the rows before it have one sequence each
	}
	for k := range n {
		b.Segments = append(b.Segments, int32(last-n+1+k))
	}
	b.Groups = append(b.Groups, int32(len(b.Segments)))
}

// placeLabel records the desirability of the row that fill has just laid out.
func (b *Batch) placeLabel(label Desirability) {
	if b.Desirable == nil && label == Unlabelled {
		return
	}
	for len(b.Desirable) < len(b.Rows)-1 { // the rows before it have no label
		b.Desirable = append(b.Desirable, Unlabelled)
	}
	b.Desirable = append(b.Desirable, label)
}
