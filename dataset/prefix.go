package dataset

import (
	"fmt"
	"slices"
)

// The sequences of a group often begin alike: a pair's answers have one prompt. Such a prefix can be laid out once, as
// a sequence of its own that the others continue, instead of at the start of each of them.
//
//	rows as they are read      p0 p1 p2 a0 a1 | p0 p1 p2 b0 b1 b2
//	with a shared prefix       p0 p1 | p2 a0 a1 | p2 b0 b1 b2
//
// The last token before the answers differ stays with each of them, because it predicts the first token of each. So
// every token has one label, and nothing that reads tokens and labels has to know about prefixes. Attention and
// positions do.

// prefixed is an optional capability of Rows: the sequences of a row may continue a prefix.
type prefixed interface {
	// Prefix returns the number of tokens of the prefix of row i, 0 if it has none, without reading its tokens.
	Prefix(i int) int
}

// prefixOf returns the number of tokens of the prefix of row i, 0 if its sequences continue none.
func prefixOf(rows Rows, i int) int {
	if p, ok := rows.(prefixed); ok {
		return p.Prefix(i)
	}
	return 0
}

// sequencesOf returns the number of sequences of row i without the prefix that they may continue.
func sequencesOf(rows Rows, i int) int {
	n := 1 + len(bordersOf(rows, i))
	if prefixOf(rows, i) > 0 {
		n--
	}
	return n
}

// Prefix returns the number of tokens of the prefix of row i.
func (m Memory) Prefix(i int) int { return m[i].prefixBefore(1) }

// Prefix returns the number of tokens of the prefix of row i.
func (v joined) Prefix(i int) int {
	rows, i := v.at(i)
	return prefixOf(rows, i)
}

// Prefix returns the number of tokens of the prefix of row i.
func (s selected) Prefix(i int) int { return prefixOf(s.rows, int(s.indices[i])) }

// Prefix returns the number of tokens of the prefix of row i.
func (s subset) Prefix(i int) int { return prefixOf(s.rows, s.at(i)) }

// prefixBefore returns the number of tokens of the prefix that sequence k of the row continues, 0 if it continues none.
func (r Row) prefixBefore(k int) int {
	if !r.Prefix || k == 0 || len(r.Borders) == 0 {
		return 0
	}
	return int(r.Borders[0])
}

// placePrefix records that the last n of a batch's segments so far continue the one before them; last is the last one.
func (b *Batch) placePrefix(last, n int) {
	if b.Prefixes == nil {
		b.Prefixes = slices.Repeat([]int32{-1}, len(b.CuSeqlens)-1)
	}
	for k := range n {
		b.Prefixes[last-k] = int32(last - n)
	}
}

// commonPrefix returns the number of tokens of a row's sequences that can be laid out once: those that all of them
// begin with and that none trains, without the last. It returns 0 for a row of one sequence.
func commonPrefix(r Row) int {
	if len(r.Borders) == 0 || r.Prefix {
		return 0
	}
	ids, labels := r.Sequence(0)
	n := len(ids)
	for k := range r.Sequences() {
		own, trained := r.Sequence(k)
		n = min(n, len(own))
		for t := range n {
			if own[t] != ids[t] || trained[t] != Ignore || labels[t] != Ignore {
				n = t
				break
			}
		}
	}
	return max(n-1, 0)
}

// shared returns the row with its first tokens, a common prefix, laid out once.
func (r Row) shared(prefix int) Row {
	if prefix == 0 {
		return r
	}
	n := len(r.IDs) - (r.Sequences()-1)*prefix
	s := r
	s.Prefix, s.Borders = true, make([]int32, 0, r.Sequences())
	s.IDs, s.Labels = newRow(n)
	if r.Weights != nil {
		s.Weights = make([]float32, n)
	}
	if r.Rollout != nil {
		s.Rollout = r.Rollout.shared(r, prefix)
	}
	at := 0
	take := func(from, to int) {
		copy(s.IDs[at:], r.IDs[from:to])
		copy(s.Labels[at:], r.Labels[from:to])
		if r.Weights != nil {
			copy(s.Weights[at:], r.Weights[from:to])
		}
		at += to - from
	}
	take(0, prefix)
	for k := range r.Sequences() {
		from, to := sequenceSpan(r.Borders, k, len(r.IDs))
		s.Borders = append(s.Borders, int32(at))
		take(from+prefix, to)
	}
	return s
}

// Share returns a row of unshared sequences as batches of the shape lay it out: with what its sequences have in common
// laid out once, where the batches have prefixes.
func (s Shape) Share(r Row) Row {
	if !s.Prefixes {
		return r
	}
	return r.shared(commonPrefix(r))
}

// sharing is rows whose sequences share their common prefixes.
type sharing struct {
	rows   Rows
	prefix []int32 // tokens of each row's prefix; 0 = the row is as it was
	saved  []int32 // tokens that each row has less
}

// share returns the rows with every prefix of at least least tokens laid out once.
func share(rows Rows, least int) sharing {
	s := sharing{rows: rows, prefix: make([]int32, rows.Len()), saved: make([]int32, rows.Len())}
	for i := range rows.Len() {
		if others := len(bordersOf(rows, i)); others > 0 {
			if n := commonPrefixOf(rows, i); n >= max(least, 1) {
				s.prefix[i], s.saved[i] = int32(n), int32(others*n)
			}
		}
	}
	return s
}

// commonPrefixOf is commonPrefix of row i. That of answers that are not sampled yet follows from the prompt.
func commonPrefixOf(rows Rows, i int) int {
	if a, ok := rows.(answeredRows); ok {
		return a.Rows.Length(i) - 1
	}
	return commonPrefix(rows.Row(i))
}

func (s sharing) Len() int         { return s.rows.Len() }
func (s sharing) Length(i int) int { return s.rows.Length(i) - int(s.saved[i]) }
func (s sharing) Row(i int) Row    { return s.rows.Row(i).shared(int(s.prefix[i])) }

// Trained returns the number of trained tokens of row i, which are the same.
func (s sharing) Trained(i int) int { return s.rows.Trained(i) }

// Prefix returns the number of tokens of the prefix of row i.
func (s sharing) Prefix(i int) int { return int(s.prefix[i]) }

// Hash is Row.hash of the row as it was read.
func (s sharing) Hash(i int) uint64 { return hashOf(s.rows, i) }

// Digest returns the digest of the rows as they were read, so that a run may be resumed whatever is shared.
func (s sharing) Digest() (string, bool) { return digest(s.rows), true }

// Continues reports whether row i is from the same source row as the one before.
func (s sharing) Continues(i int) bool { return continues(s.rows, i) }

// Borders returns Row.Borders of row i.
func (s sharing) Borders(i int) []int32 {
	borders, prefix := bordersOf(s.rows, i), s.prefix[i]
	if prefix == 0 {
		return borders
	}
	all := []int32{prefix}
	for k, border := range borders {
		all = append(all, border-int32(k)*prefix)
	}
	return all
}

// Prefixes measures what the sequences of a set's groups have in common.
type Prefixes struct {
	Groups int // training rows whose sequences have a common prefix
	Tokens int // tokens of all training rows
	Saved  int // tokens that need not be computed if each of these prefixes is laid out once
	Median int // median length of the prefixes
}

// Share returns Saved as a part of all tokens, 0 to 1.
func (p Prefixes) Share() float64 { return float64(p.Saved) / float64(max(p.Tokens, 1)) }

// String says what is shared, such as "prompts of 128 tokens (p50), 24.1% of the tokens".
func (p Prefixes) String() string {
	return fmt.Sprintf("prompts of %d tokens (p50), %.1f%% of the tokens", p.Median, 100*p.Share())
}

// SharePrefixes lays out the common prefix of each row's sequences once, in training and in validation rows, where it
// has at least least tokens. It must not be called for a stream.
func (s *Set) SharePrefixes(least int) {
	if s.stream != nil {
		panic("share prefixes: the rows of a stream are not known")
	}
	s.Train, s.Val = share(s.Train, least), share(s.Val, least)
}

// Prefixes measures the prefixes of at least least tokens in the training rows, which SharePrefixes would lay out once
// or has laid out once. For a stream it returns the zero value.
func (s *Set) Prefixes(least int) (p Prefixes) {
	if s.stream != nil {
		return p
	}
	shared, ok := s.Train.(sharing)
	if !ok {
		shared = share(s.Train, least)
	}
	var lengths []int
	for i, n := range shared.prefix {
		p.Tokens += shared.rows.Length(i)
		if n > 0 {
			lengths = append(lengths, int(n))
			p.Groups, p.Saved = p.Groups+1, p.Saved+int(shared.saved[i])
		}
	}
	p.Median = median(lengths)
	return p
}

// median returns the median of lengths, which it sorts; 0 without any.
func median(lengths []int) int {
	if len(lengths) == 0 {
		return 0
	}
	slices.Sort(lengths)
	return lengths[len(lengths)/2]
}
