//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU also writes the parameters' copy in 16 bits.
// hyper: fp32 learning rate first, the step number's bits in the last word; the clip factor follows the norm.
func (k AdamW) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	hyper := in[5].Ptr
	return g.Launch(cuda.AdamW(n), out[0].Ptr, out[1].Ptr, out[2].Ptr, g.Copy, in[1].Ptr, hyper, hyper.Add(12), in[4].Ptr.Add(4), scalingAt(k.Scaled, in), n,
		float32(k.Beta1), float32(k.Beta2), float32(k.Eps), float32(k.WeightDecay))
}
