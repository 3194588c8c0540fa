//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU also writes the parameters' copy in 16 bits. The clip factor follows the norm.
func (k SGD) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	nesterov := int32(0)
	if k.Nesterov {
		nesterov = 1
	}
	return g.Launch(cuda.Flat("sgd", "sgd_step", (n+3)/4), out[0].Ptr, out[1].Ptr, g.Copy, in[1].Ptr, in[4].Ptr,
		in[3].Ptr.Add(4), n, float32(k.Momentum), float32(k.WeightDecay), nesterov)
}
