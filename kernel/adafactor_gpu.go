//go:build gpu

package kernel

import (
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// GPU runs a block for each tensor, and also writes the parameters' copy in 16 bits.
// hyper: fp32 learning rate and Beta2, the step number's bits in the last word; the clip factor follows the norm.
func (k Adafactor) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	hyper, scale := in[7].Ptr, int32(0)
	if k.ScaleParameter {
		scale = 1
	}
	return g.Launch(cuda.PerMatrix("adafactor", "adafactor_step", len(k.Matrices)), out[0].Ptr, out[1].Ptr, out[2].Ptr,
		out[3].Ptr, g.Copy, in[1].Ptr, in[5].Ptr, hyper, hyper.Add(12), in[6].Ptr.Add(4), scalingAt(k.Scaled, in),
		float32(k.Beta1), float32(1-k.Beta1), int64(math.Float64bits(k.ClipThreshold)),
		int64(math.Float64bits(k.WeightDecay)), scale)
}
