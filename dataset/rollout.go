package dataset

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Rollout is what a row of sampled answers says besides its tokens. The row is a group of answers to one prompt. Each
// sequence is the prompt and an answer, whose tokens are labelled.
type Rollout struct {
	// Old [n] are the log-probabilities with which the tokens were sampled, Old[t] that of IDs[t]; NaN where it is not
	// known, and for tokens of the prompt. nil = none is known.
	Old []float32
	// Reference [n] are the log-probabilities of the tokens under the reference, as Old; nil = none is known.
	Reference []float32
	Names     []string // names of the rewards, ascending
	// Rewards holds for each sequence its rewards in the order of Names; NaN = the reward could not be given.
	Rewards [][]float64
	// Divergence holds for each sequence the sum over its answer of Old minus Reference; nil = they are not known.
	Divergence []float64
	// Advantages holds for each sequence how much better than the others of its group it is; nil = not computed yet.
	Advantages []float64
	// Truncated tells of each sequence whether its answer has no end token, because it was too long.
	Truncated []bool
	Group     string // the group's name in its file; "" = it has none
}

// Check returns an error if the rollout does not fit a row with the given numbers of tokens and sequences, without the
// prefix that they may continue.
func (r *Rollout) Check(tokens, sequences int) error {
	for _, list := range []struct {
		what string
		own  []float32
	}{{"old log-probabilities", r.Old}, {"log-probabilities of the reference", r.Reference}} {
		if list.own != nil && len(list.own) != tokens {
			return fmt.Errorf("the rollout has %d %s for %d tokens", len(list.own), list.what, tokens)
		}
	}
	for _, n := range []int{len(r.Rewards), len(r.Truncated)} {
		if n != sequences {
			return fmt.Errorf("the rollout has rewards of %d answers and ends of %d, and the row has %d "+
				"sequences", len(r.Rewards), len(r.Truncated), sequences)
		}
	}
	if r.Advantages != nil && len(r.Advantages) != sequences {
		return fmt.Errorf("the rollout has %d advantages for %d sequences", len(r.Advantages), sequences)
	}
	for _, rewards := range r.Rewards {
		if len(rewards) != len(r.Names) {
			return fmt.Errorf("the rollout has %d rewards of an answer and %d names of rewards", len(rewards),
				len(r.Names))
		}
	}
	return nil
}

// join adds an answer, a rollout of one sequence, behind the others.
func (r *Rollout) join(one *Rollout, tokens, more int) error {
	if !slices.Equal(r.Names, one.Names) {
		return fmt.Errorf("it has the rewards %q, and the answers before it in the group have %q: all answers of a "+
			"group have the same rewards, with null where one could not be given", one.Names, r.Names)
	}
	r.Old = joinNumbers(r.Old, one.Old, tokens, more)
	r.Reference = joinNumbers(r.Reference, one.Reference, tokens, more)
	r.Rewards = append(r.Rewards, one.Rewards...)
	r.Truncated = append(r.Truncated, one.Truncated...)
	return nil
}

// joinNumbers appends the numbers of more tokens to those of the tokens before them. nil stands for numbers that are
// not known.
func joinNumbers(to, more []float32, tokens, n int) []float32 {
	if to == nil && more == nil {
		return nil
	}
	if to == nil {
		to = unknown(tokens)
	}
	if more == nil {
		more = unknown(n)
	}
	return append(to, more...)
}

// unknown returns n numbers that are not known.
func unknown(n int) []float32 { return slices.Repeat([]float32{float32(math.NaN())}, n) }

// TakeRollouts gives the batch copies of its rows' rollouts, so that a caller may change them: Rollouts[k] belongs
// to row Rows[k]. It returns false if a row has none.
func (b *Batch) TakeRollouts() bool {
	b.Rollouts = make([]*Rollout, len(b.Rows))
	for k, row := range b.Rows {
		r := b.of.Row(row).Rollout
		if r == nil {
			return false
		}
		own := *r
		if own.Divergence == nil {
			own.Divergence = own.divergence(b.Borders(k), b.Length(k))
			if b.SharesPrefix(k) && own.Divergence != nil {
				own.Divergence = own.Divergence[1:]
			}
		}
		b.Rollouts[k] = &own
	}
	return true
}

// shared returns the rollout of a row whose first tokens are laid out once (Row.shared).
func (r *Rollout) shared(of Row, prefix int) *Rollout {
	own := *r
	for _, list := range []*[]float32{&own.Old, &own.Reference} {
		if *list == nil {
			continue
		}
		all := append([]float32{}, (*list)[:prefix]...)
		for k := range of.Sequences() {
			from, to := sequenceSpan(of.Borders, k, len(of.IDs))
			all = append(all, (*list)[from+prefix:to]...)
		}
		*list = all
	}
	return &own
}

// MaskTruncated takes answers without an end token out of the loss, and returns how many tokens are trained less.
func (b *Batch) MaskTruncated() (less int) {
	groups, segments := b.Sequences()
	for k, r := range b.Rollouts {
		for j, segment := range segments[groups[k]:groups[k+1]] {
			if !r.Truncated[j] {
				continue
			}
			own := b.Labels[b.CuSeqlens[segment]:b.CuSeqlens[segment+1]]
			less += countTrained(own)
			for t := range own {
				own[t] = Ignore
			}
		}
	}
	b.TrainedTokens -= less
	return less
}

// divergence returns Divergence for a row of n tokens with the given borders.
func (r *Rollout) divergence(borders []int32, n int) []float64 {
	if r.Old == nil || r.Reference == nil {
		return nil
	}
	all := make([]float64, len(borders)+1)
	for k := range all {
		from, to := sequenceSpan(borders, k, n)
		for t := from; t < to; t++ {
			if d := float64(r.Old[t]) - float64(r.Reference[t]); !math.IsNaN(d) {
				all[k] += d
			}
		}
	}
	return all
}

// append appends what the rollout says to a row of the digest. Its first number is larger than the length with which
// the next row begins. nil appends nothing.
func (r *Rollout) append(buf []byte) []byte {
	if r == nil {
		return buf
	}
	buf = binary.LittleEndian.AppendUint32(buf, 7<<29)
	for _, list := range [][]float32{r.Old, r.Reference} {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(len(list)))
		for _, x := range list {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
		}
	}
	buf = fmt.Appendf(buf, "%q %q %v", r.Names, r.Group, r.Truncated)
	for _, rewards := range r.Rewards {
		for _, x := range rewards {
			buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(x))
		}
	}
	return buf
}
