//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU computes the loss of each answer in a block and the sums of all answers in another launch. Where only tokens of
// high entropy count, a launch before them finds the limit.
func (o PolicyLoss) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, S := in[1].Shape[0], in[4].Shape[0]
	b := o.parts(in, out)
	var work []func() error
	limit := gpu.Ptr(0)
	if o.TopEntropy < 1 {
		limit = g.Scratch
		l, err := g.Launch(cuda.PolicyLimit(), limit, b.entropies, in[2].Ptr, in[3].Ptr, int32(M), int32(S),
			double(1-o.TopEntropy))
		if err != nil {
			return nil, err
		}
		work = append(work, l)
	}
	args := []any{b.dlogp, b.dentropies, g.Scratch, in[0].Ptr, b.entropies, in[1].Ptr, b.reference}
	args = append(pointers(args, in[2:6]...), scalingAt(o.Scaled, in), limit, int32(M), int32(S), int32(o.Form),
		int32(o.Level), flag(o.WeighKL))
	for _, x := range []float64{o.Low, o.High, o.Delta, o.Beta, o.Above, o.Below, o.K, o.Lambda, o.KBelow, o.LambdaBelow,
		o.OffPolicy, o.EntropyBonus} {
		args = append(args, double(x))
	}
	each, err := g.Launch(cuda.PolicyAnswers(S), args...)
	if err != nil {
		return nil, err
	}
	args = pointers([]any{out[0].Ptr}, out[len(out)-PolicySums:]...)
	sums, err := g.Launch(cuda.PolicySums(), append(args, g.Scratch, in[5].Ptr, int32(S))...)
	if err != nil {
		return nil, err
	}
	return inOrder(append(work, each, sums)...), nil
}

// policyParts are the memory of a PolicyLoss that depends on its attributes; 0 = there is none.
type policyParts struct{ entropies, reference, dlogp, dentropies gpu.Ptr }

// parts returns where the optional tensors of a PolicyLoss lie.
func (o PolicyLoss) parts(in, out []DeviceTensor) (b policyParts) {
	second, rest := 4*int64(in[1].Shape[0]), in[6:]
	if o.EntropyBonus != 0 {
		b.entropies = in[0].Ptr.Add(second)
	} else {
		b.entropies, rest = rest[0].Ptr, rest[1:]
	}
	if o.Beta != 0 {
		b.reference = rest[0].Ptr
	}
	if o.Grad {
		b.dlogp = out[1].Ptr
	}
	if o.Grad && o.EntropyBonus != 0 {
		b.dentropies = out[1].Ptr.Add(second)
	}
	return b
}
