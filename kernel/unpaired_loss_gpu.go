//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU computes the loss of all rows in one block.
func (o UnpairedLoss) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	dpolicy := gpu.Ptr(0)
	if o.Grad {
		dpolicy = out[1].Ptr
	}
	args := pointers([]any{out[0].Ptr, dpolicy}, out[len(out)-unpairedSums:]...)
	args = append(pointers(args, in[:4]...), scalingAt(o.Scaled, in), int32(in[2].Shape[0]), int32(in[0].Shape[0]),
		int32(o.Form), double(o.Beta), double(o.Desirable), double(o.Undesirable))
	return g.Launch(cuda.Unpaired(), args...)
}
