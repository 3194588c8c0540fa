package nn

import "github.com/tierlora/tierlora/kernel"

// Frequencies is what a configuration says of rotary positions (model.Config).
type Frequencies interface {
	InvFreq(seqLen int) (invFreq []float64, attentionScale float64, err error)
	LongRope(longest int) (limit int, both bool)
	QueryScale(longest int) func(position int) float64
}

// Rotary is a table of rotary angles, and a batch whose positions are places in it.
type Rotary struct {
	Table   *Value // nil = none: the network has failed
	Queries *Value // that of queries: Table, but where they are scaled by their position
	In      Batch
}

// Rotary is the table for a batch. LongRoPE's angles depend on the length of each sequence: where a batch may hold
// sequences of both kinds, the table has rows for either. Tokens that are generated over a cache go by the longest text
// that the cache holds: keys are not rotated again while it grows. A training step and the samples that share its
// memory have one table.
//
// Queries that are scaled by their position p have a table of their own, with the cosines and sines times s(p): a
// rotation is linear, so that it gives s(p) R(p) q. Where positions stay below the first of which s is not 1 there is
// one table.
func (n *Net) Rotary(c Frequencies, in Batch) Rotary { return n.rotary("rope", c, in) }

// Rotaries are those of full layers and of windowed ones, which may have their own.
func (n *Net) Rotaries(c, ofWindowed Frequencies, own bool, in Batch) (full, windowed Rotary) {
	full = n.Rotary(c, in)
	if !own || full.Table == nil {
		return full, full
	}
	return full, n.rotary("rope of windowed layers", ofWindowed, in)
}

func (n *Net) rotary(name string, c Frequencies, in Batch) Rotary {
	longest, scale, err := c.InvFreq(in.MaxLen)
	if err != nil {
		n.Fail(err)
		return Rotary{}
	}
	invFreq := [][]float64{longest}
	limit, both := c.LongRope(in.MaxLen)
	if both && (in.Cache == nil || in.Cache.Longest != 0) {
		short, _, err := c.InvFreq(limit)
		if err != nil {
			n.Fail(err)
			return Rotary{}
		}
		invFreq = [][]float64{short, longest}
	}
	r := Rotary{Table: n.ropeTable(name, in.MaxLen, func(int) float64 { return scale }, invFreq...), In: in}
	r.Queries = r.Table
	if of := c.QueryScale(in.MaxLen); of != nil {
		r.Queries = n.ropeTable(name+" of queries", in.MaxLen, func(position int) float64 {
			return scale * of(position)
		}, invFreq...)
	}
	if len(invFreq) == 2 {
		r.In = n.byLength(limit, in)
	}
	return r
}

// byLength moves the positions of sequences of more than limit tokens to the long angles, which follow the short ones
// in a table.
func (n *Net) byLength(limit int, in Batch) Batch {
	switch cache := in.Cache; {
	case cache == nil:
		in.Positions = n.Apply(kernel.PositionsByLength{Limit: limit, Offset: in.MaxLen, Ranks: n.Ranks()},
			in.Positions, in.CuQ)
	case cache.Longest > limit:
		in.Positions = n.Apply(kernel.PositionsByLength{Offset: in.MaxLen}, in.Positions, in.CuQ)
	}
	return in
}
