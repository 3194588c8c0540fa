package optimizer

import (
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// lion8Bit is Lion with its moment in 8 bits, as bitsandbytes' Lion8bit: 1 byte of states for a trained number, not 4.
// Tensors are those of PEFT's files, as adamW8Bit has them.
type lion8Bit struct{ Config }

// newLion8Bit rounds the betas to float32, which bitsandbytes computes with.
func newLion8Bit(c Config) Optimizer {
	c.Beta1, c.Beta2 = float64(float32(c.Beta1)), float64(float32(c.Beta2))
	return lion8Bit{c}
}

// Numbers returns the learning rate alone.
func (lion8Bit) Numbers(lr float64, _ int) [NumbersSize]float64 { return [NumbersSize]float64{lr} }

// Unit returns the size of a block of moments, for a single tensor whose moments have 8 bits.
func (lion8Bit) Unit(u Update) int { return u.momentUnit() }

// Apply declares codes and scales of large tensors, and float32 moments of small ones.
func (l lion8Bit) Apply(u Update) []string {
	large, small := u.momentBlocks()
	table := u.blockTable(append(large, small...))
	float := u.Grads.Type.DType
	var in []*graph.Value
	var names []string
	declare := func(d kernel.DType, blocks, each int, name string, cut bool) {
		name = u.named("momentum" + name)
		if cut {
			u.cutMoments(name, each)
		}
		in, names = append(in, u.moments("lion m", name, kernel.T(d, blocks*each))), append(names, name)
	}
	q := max(len(large), 1)
	declare(kernel.U8, q, kernel.MomentBlock, " in 8 bits", true)
	declare(float, q, 1, "'s scales", true)
	declare(float, max(len(small), 1), kernel.MomentBlock, " of small tensors", false)
	k := kernel.Lion8Bit{Beta1: l.Beta1, Beta2: l.Beta2, WeightDecay: u.decay(l.WeightDecay), Quantised: len(large),
		Scaled: u.Scaling != nil}
	u.Net.Apply(k, u.scaled(append(append([]*graph.Value{u.Params, u.Grads}, in...), table, u.Norm, u.Numbers)...)...)
	return names
}
