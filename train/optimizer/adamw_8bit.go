package optimizer

import (
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// adamW8Bit is AdamW with both moments in 8 bits, as bitsandbytes' AdamW8bit: 2 bytes of states for a trained
// number, not 8.
// Tensors are those of PEFT's files, so that the blocks are those that it would have there; of a parameter of
// experts B lies in
// another order here than in its file, and its blocks in this one.
type adamW8Bit struct{ Config }

// newAdamW8Bit has the betas that bitsandbytes computes with, which are float32.
func newAdamW8Bit(c Config) Optimizer {
	c.Beta1, c.Beta2 = float64(float32(c.Beta1)), float64(float32(c.Beta2))
	return adamW8Bit{c}
}

// Numbers are AdamW's.
func (a adamW8Bit) Numbers(lr float64, t int) [NumbersSize]float64 { return adamW(a).Numbers(lr, t) }

// Unit returns the size of a block of moments, for a single tensor whose moments have 8 bits.
func (adamW8Bit) Unit(u Update) int { return u.momentUnit() }

func (a adamW8Bit) Apply(u Update) []string {
	large, small := u.momentBlocks()
	table := u.blockTable(append(large, small...))

	float := u.Grads.Type.DType
	q, r := max(len(large), 1), max(len(small), 1)
	var in []*graph.Value
	var names []string
	declare := func(d kernel.DType, blocks, each int, name string, cut bool) {
		for i, group := range []string{"adam m", "adam v"} {
			name := u.named([]string{"first", "second"}[i] + " moments" + name)
			if cut {
				u.cutMoments(name, each)
			}
			in, names = append(in, u.moments(group, name, kernel.T(d, blocks*each))), append(names, name)
		}
	}
	declare(kernel.U8, q, kernel.MomentBlock, " in 8 bits", true)
	declare(float, q, 1, "' scales", true)
	declare(float, r, kernel.MomentBlock, " of small tensors", false)

	k := kernel.AdamW8Bit{Beta1: a.Beta1, Beta2: a.Beta2, Eps: a.Epsilon, WeightDecay: u.decay(a.WeightDecay),
		Quantised: len(large), Scaled: u.Scaling != nil}
	u.Net.Apply(k, u.scaled(append(append([]*graph.Value{u.Params, u.Grads}, in...), table, u.Norm, u.Numbers)...)...)
	return names
}
