//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
)

// GPU also writes the parameters' copy in 16 bits.
// hyper: fp32 learning rate first, the step number's bits in the last word; the clip factor follows the norm.
func (k AdamW) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	hyper := in[5].Ptr
	return g.Launch(cuda.AdamW(n), out[0].Ptr, out[1].Ptr, out[2].Ptr, g.Copy, in[1].Ptr, hyper, hyper.Add(12),
		in[4].Ptr.Add(4), scalingAt(k.Scaled, in), n,
		float32(k.Beta1), float32(k.Beta2), float32(k.Eps), float32(k.WeightDecay))
}

// GPU also writes the parameters' copy in 16 bits, as AdamW's does.
func (k AdamW8Bit) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	blocks, hyper := in[8].Shape[0], in[10].Ptr
	return g.Launch(cuda.AdamW8Bit(blocks), out[0].Ptr, g.Copy, in[1].Ptr, out[1].Ptr, out[2].Ptr, out[3].Ptr,
		out[4].Ptr, out[5].Ptr, out[6].Ptr, in[8].Ptr,
		hyper, hyper.Add(12), in[9].Ptr.Add(4), scalingAt(k.Scaled, in), int32(k.Quantised), int32(blocks),
		float32(k.Beta1), float32(k.Beta2), float32(k.Eps), float32(k.WeightDecay))
}
