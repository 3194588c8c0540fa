//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU also writes the parameters' copy in 16 bits. The clip factor follows the norm.
func (k Lion8Bit) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	blocks := in[5].Shape[0]
	return g.Launch(cuda.Flat("lion_8bit", "lion_8bit_step", int64(blocks)*32), out[0].Ptr, g.Copy, in[1].Ptr,
		out[1].Ptr, out[2].Ptr, out[3].Ptr, in[5].Ptr, in[7].Ptr, in[6].Ptr.Add(4), int32(k.Quantised), int32(blocks),
		float32(k.Beta1), float32(k.Beta2), float32(k.WeightDecay))
}
