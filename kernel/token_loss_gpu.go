//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU computes the tokens' losses, and then their sums.
func (o TokenLoss) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M := in[0].Shape[0]
	weights, dlogp := gpu.Ptr(0), gpu.Ptr(0)
	if o.Weighted {
		weights = in[3].Ptr
	}
	if o.Grad {
		dlogp = out[1].Ptr
	}
	loss, each, nll := out[0], out[len(out)-2], out[len(out)-1]
	entry := [...]string{"token_loss_dft", "token_loss_focal"}[o.Form]
	tokens, err := g.Launch(cuda.Flat("token_loss", entry, int64(M)), each.Ptr, g.Scratch, dlogp, in[0].Ptr, in[1].Ptr,
		weights, in[2].Ptr, scalingAt(o.Scaled, in), float32(o.Gamma), int32(M))
	if err != nil {
		return nil, err
	}
	total, err := g.Launch(cuda.Sum("reduce", "reduce_sum"), loss.Ptr, each.Ptr, int32(M), in[2].Ptr, int32(0))
	if err != nil {
		return nil, err
	}
	labels, err := g.Launch(cuda.Sum("reduce", "reduce_sum"), nll.Ptr, g.Scratch, int32(M), gpu.Ptr(0), int32(0))
	if err != nil {
		return nil, err
	}
	return inOrder(tokens, total, labels), nil
}
