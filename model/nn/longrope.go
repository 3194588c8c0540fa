package nn

import "github.com/tierlora/tierlora/kernel"

// Frequencies provides the rotary frequencies of a configuration (model.Config).
type Frequencies interface {
	InvFreq(seqLen int) (invFreq []float64, attentionScale float64, err error)
	LongRope(longest int) (limit int, both bool)
	QueryScale(longest int) func(position int) float64
}

// Rotary is a table of rotary angles, and a batch whose positions are row numbers of the table.
type Rotary struct {
	Table   *Value // nil = the network has failed
	Queries *Value // table for queries; it differs from Table if queries are scaled by their position
	In      Batch
}

// Rotary returns the table for a batch. LongRoPE's angles depend on the length of each sequence: if a batch may hold
// both short and long sequences, the table has rows for both. Generation with a cache chooses by the longest text that
// the cache can hold, since keys are not rotated again while it grows. A training step and the samples that share its
// memory use one table.
//
// Queries that are scaled by their position p have a table of their own with cosines and sines times s(p): rotation is
// linear, so this yields s(p) R(p) q. If s is 1 for all positions of the batch, both use one table.
func (n *Net) Rotary(c Frequencies, in Batch) Rotary { return n.rotary("rope", c, in) }

// Rotaries returns the tables of full layers and of windowed layers, which may differ.
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
	switch {
	case len(invFreq) == 2:
		r.In = n.byLength(limit, in)
	case n.Angles != nil:
		r.Table = n.Angles(r.Table)
		r.Queries = r.Table
	}
	return r
}

// byLength moves the positions of sequences with more than limit tokens to the long angles, which follow the short ones
// in the table.
func (n *Net) byLength(limit int, in Batch) Batch {
	in.refusePrefix(n, "the angles of rotary embeddings depend on a sequence's length")
	switch cache := in.Cache; {
	case cache == nil:
		in.Positions = n.Apply(kernel.PositionsByLength{Limit: limit, Offset: in.MaxLen, Ranks: n.Ranks()},
			in.Positions, in.CuQ)
	case cache.Longest > limit:
		in.Positions = n.Apply(kernel.PositionsByLength{Offset: in.MaxLen}, in.Positions, in.CuQ)
	}
	return in
}
