package step

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/optimizer"
)

// nameRounding is the batch value [seed, step] that stochastic rounding draws its bits from.
const nameRounding = "rounding counter"

// CheckRounding returns why a machine cannot keep weights in bf16 alone.
func CheckRounding(on graph.Machine) error {
	if p := on.Precision(); on.Capabilities().SeparateHost && p.Stored(kernel.ComputeType) != kernel.BF16 {
		return fmt.Errorf("full.stochastic_rounding keeps weights in bf16, and this run computes in %v: "+
			"set training.precision to bf16 on a device that has it, or full.stochastic_rounding to false", p)
	}
	return nil
}

// checkNarrow finds out whether trained matrices are kept in bf16 alone, and whether the optimizer serves them.
func (b *builder) checkNarrow() error {
	b.narrow = slices.ContainsFunc(b.trained.Params, (*graph.Value).Narrow)
	if _, averages := b.options.Optimizer.(optimizer.Averaging); b.narrow && averages {
		return errors.New("full.stochastic_rounding rounds the weights that an update leaves, and this " +
			"training.optimizer computes them from averages that it keeps: choose another optimizer, or set " +
			"full.stochastic_rounding to false")
	}
	return nil
}

// apply adds the optimizer's update of parameters. A tensor that is kept in bf16 alone is widened before, and rounded
// stochastically behind.
func (b *builder) apply(u optimizer.Update) (states []string) {
	change := func(u optimizer.Update) { states = b.options.Optimizer.Apply(u) }
	stored := u.Params
	if !stored.Narrow() {
		b.changeSlice(u, change)
		return states
	}
	u.Params = b.Apply(kernel.WidenBF16{}, stored)
	b.changeSlice(u, change)
	h := fnv.New64a()
	h.Write([]byte(u.Tensor)) //nolint:errcheck // a hash takes all
	counter := b.Batch(nameRounding, kernel.T(kernel.I32, 2))
	b.Apply(kernel.RoundStochastic{Stream: h.Sum64()}, stored, u.Params.Newest(b.Builder), counter)
	return states
}

// bindRounding finds the counter of stochastic rounding in the memory of a plan; nil = the step has none.
func (t *Step) bindRounding(b *session.Batch) ([]int32, error) {
	if !slices.ContainsFunc(t.Trained.Params, (*graph.Value).Narrow) {
		return nil, nil
	}
	return b.Int32s(nameRounding)
}
