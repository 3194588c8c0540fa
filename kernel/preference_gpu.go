//go:build gpu

package kernel

import (
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// double passes a float64 to a launch, which takes 8 bytes of any kind.
func double(x float64) int64 { return int64(math.Float64bits(x)) }

// pointers appends the memory of some tensors to a launch's arguments.
func pointers(args []any, tensors ...DeviceTensor) []any {
	for _, t := range tensors {
		args = append(args, t.Ptr)
	}
	return args
}

// GPU computes the loss of all pairs in one block.
func (o PairLoss) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	dpolicy, dtail := gpu.Ptr(0), gpu.Ptr(0)
	if o.Grad {
		dpolicy = out[1].Ptr
	}
	if o.Grad && o.Tail {
		dtail = out[2].Ptr
	}
	tail, referenceTail, entropies, rest := gpu.Ptr(0), gpu.Ptr(0), gpu.Ptr(0), in[5:]
	if o.Tail {
		tail, referenceTail, rest = rest[0].Ptr, rest[1].Ptr, rest[2:]
	}
	if o.Weighted {
		entropies = rest[0].Ptr
	}
	args := pointers([]any{out[0].Ptr, dpolicy, dtail}, out[len(out)-pairSums:]...)
	args = append(pointers(args, in[:5]...), tail, referenceTail, entropies, scalingAt(o.Scaled, in), g.Scratch,
		int32(in[3].Shape[0]), int32(in[0].Shape[0]), int32(o.Divergence), double(o.Beta), double(o.Smoothing),
		double(o.Tau), double(o.Alpha), double(o.TailWeight))
	for _, w := range o.Weights {
		args = append(args, double(w))
	}
	return g.Launch(cuda.Preference("preference_pairs"), args...)
}

// GPU computes the loss of all pairs in one block.
func (o MarginLoss) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	dpolicy, dlikelihood := gpu.Ptr(0), gpu.Ptr(0)
	if o.Grad {
		dpolicy, dlikelihood = out[1].Ptr, out[2].Ptr
	}
	args := pointers([]any{out[0].Ptr, dpolicy, dlikelihood}, out[len(out)-marginSums:]...)
	args = append(pointers(args, in[:6]...), scalingAt(o.Scaled, in), g.Scratch, int32(in[4].Shape[0]),
		int32(in[0].Shape[0]), int32(o.Form), double(o.Beta), double(o.Smoothing), double(o.Gamma), double(o.Alpha),
		double(o.Likelihood))
	return g.Launch(cuda.Preference("preference_margins"), args...)
}
