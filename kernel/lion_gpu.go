//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU also writes the parameters' copy in 16 bits. The clip factor follows the norm.
func (k Lion) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.Flat("lion", "lion_step", (n+3)/4), out[0].Ptr, out[1].Ptr, g.Copy, in[1].Ptr, in[4].Ptr,
		in[3].Ptr.Add(4), n,
		float32(k.Beta1), float32(1-k.Beta1), float32(k.Beta2), float32(1-k.Beta2), float32(k.WeightDecay))
}
