package nn

import "github.com/tierlora/tierlora/kernel"

// Frequencies is what a configuration says of rotary positions (model.Config).
type Frequencies interface {
	InvFreq(seqLen int) (invFreq []float64, attentionScale float64, err error)
	LongRope(longest int) (limit int, both bool)
}

// Rotary is a table of rotary angles, and a batch whose positions are places in it.
type Rotary struct {
	Table *Value // nil = none: the network has failed
	In    Batch
}

// Rotary is the table for a batch. LongRoPE's angles depend on the length of each sequence: where a batch may hold sequences of
// both kinds, the table has rows for either. Tokens that are generated over a cache go by the longest text that the cache
// holds: keys are not rotated again while it grows. A training step and the samples that share its memory have one table.
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
	limit, both := c.LongRope(in.MaxLen)
	if !both || in.Cache != nil && in.Cache.Longest == 0 {
		return Rotary{n.ropeTable(name, in.MaxLen, longest, scale), in}
	}
	short, _, err := c.InvFreq(limit)
	if err != nil {
		n.Fail(err)
		return Rotary{}
	}
	return n.longRoPETable(name, limit, short, longest, scale, in)
}

// longRoPETable has the angles of positions of short sequences in its first rows, and of sequences of more than limit tokens in
// as many rows behind them.
func (n *Net) longRoPETable(name string, limit int, short, long []float64, scale float64, in Batch) Rotary {
	positions := in.MaxLen
	v := n.Frozen(name, kernel.T(n.Float(), 2*positions, 2*len(short)))
	if !n.seen[name] {
		n.seen[name] = true
		n.weights = append(n.weights, Weight{Into: []string{name}, fill: func(_ Reader, dst []kernel.Tensor) error {
			fillAngles(dst[0], 0, positions, short, scale)
			fillAngles(dst[0], positions, positions, long, scale)
			return nil
		}})
	}
	switch cache := in.Cache; {
	case cache == nil:
		in.Positions = n.Apply(kernel.PositionsByLength{Limit: limit, Offset: positions, Ranks: n.ranks}, in.Positions, in.CuQ)
	case cache.Longest > limit:
		in.Positions = n.Apply(kernel.PositionsByLength{Offset: positions}, in.Positions, in.CuQ)
	}
	return Rotary{v, in}
}
