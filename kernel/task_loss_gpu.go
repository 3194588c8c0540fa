//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU computes the rows' losses, then the gradient of the bias and the sums.
func (o ClassLoss) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	S, L := in[0].Shape[0], in[0].Shape[1]
	targets, bias, dscores, scale := gpu.Ptr(0), gpu.Ptr(0), gpu.Ptr(0), in[len(o.patterns())-1]
	if o.Scaled {
		scale = in[len(o.patterns())-2]
	}
	if o.Form != ClassSingle {
		targets = in[2].Ptr
	}
	if o.Bias {
		bias = in[o.bias()].Ptr
	}
	right, errors := g.Scratch, g.Scratch.Add(rowNumbers(S))
	var round func() error
	var err error
	if o.Grad {
		dscores, round, err = roundedFrom(g, out[1], errors.Add(rowNumbers(S)))
	}
	if err != nil {
		return nil, err
	}
	each := out[len(out)-3].Ptr
	rows, err := g.Launch(cuda.ClassLoss(S), each, right, errors, dscores, in[0].Ptr, in[1].Ptr, targets, bias,
		scale.Ptr, scalingAt(o.Scaled, in), int32(o.Form), int32(S), int32(L))
	work := []func() error{rows}
	if round != nil {
		work = append(work, round)
	}
	if err == nil && o.Grad && o.Bias {
		var sums func() error
		sums, err = g.Launch(cuda.Flat("task_loss", "task_loss_bias", int64(L)), out[2].Ptr, dscores, int32(S),
			int32(L))
		work = append(work, sums)
	}
	for i, x := range []struct{ of, scale gpu.Ptr }{{each, scale.Ptr}, {right, 0}, {errors, 0}} {
		if err != nil {
			return nil, err
		}
		to := out[0]
		if i > 0 {
			to = out[len(out)-3+i]
		}
		var sum func() error
		sum, err = g.Launch(cuda.Sum("reduce", "reduce_sum"), to.Ptr, x.of, int32(S), x.scale, int32(0))
		work = append(work, sum)
	}
	return inOrder(work...), err
}

// GPU computes the loss of all pairs in one block.
func (o RewardLoss) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	drewards := gpu.Ptr(0)
	var round func() error
	var err error
	if o.Grad {
		drewards, round, err = roundedFrom(g, out[1], g.Scratch)
	}
	if err != nil {
		return nil, err
	}
	args := pointers([]any{out[0].Ptr, drewards}, out[len(out)-rewardSums:]...)
	args = append(pointers(args, in[:4]...), scalingAt(o.Scaled, in), int32(in[1].Shape[0]), int32(in[0].Shape[0]),
		double(o.Centre))
	loss, err := g.Launch(cuda.RewardLoss(), args...)
	if round == nil || err != nil {
		return loss, err
	}
	return inOrder(loss, round), nil
}

// roundedFrom returns where a kernel writes a gradient in fp32: to the gradient itself if it is stored so, else to wide,
// from where round writes it rounded. round is nil for a gradient in fp32.
func roundedFrom(g *GPU, grad DeviceTensor, wide gpu.Ptr) (to gpu.Ptr, round func() error, err error) {
	if grad.DType == F32 {
		return grad.Ptr, nil, nil
	}
	n := int64(grad.Elems())
	round, err = g.Launch(cuda.Convert(F32.String(), grad.DType.String(), n), grad.Ptr, wide, n)
	return wide, round, err
}
