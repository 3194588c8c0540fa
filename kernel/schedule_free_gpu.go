//go:build gpu

package kernel

import (
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// GPU also writes the parameters' copy in 16 bits.
// hyper: fp32 learning rate first, the step number's bits in the last word; the clip factor follows the norm.
func (k ScheduleFreeAdamW) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n, hyper := int64(out[0].Elems()), in[7].Ptr
	return g.Launch(cuda.Flat("schedule_free", "schedule_free_step", n), out[0].Ptr, out[1].Ptr, out[2].Ptr, out[3].Ptr,
		g.Copy, in[1].Ptr, in[5].Ptr, hyper, hyper.Add(12), in[6].Ptr.Add(4), scalingAt(k.Scaled, in), n,
		float32(k.Beta1), float32(1-k.Beta1), float32(k.Beta2), float32(1-k.Beta2), int64(math.Float64bits(k.Beta2)),
		float32(k.Eps), float32(k.WeightDecay))
}

// GPU runs in one thread. The clip factor follows the norm.
func (ScheduleFreeWeight) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	one := cuda.Geometry{Stem: "schedule_free", Entry: "schedule_free_weight", Grid: [3]int{1, 1, 1},
		Block: [3]int{32, 1, 1}}
	return g.Launch(one, out[0].Ptr, in[2].Ptr, in[1].Ptr.Add(4))
}

// GPU also writes the parameters' copy in 16 bits.
func (k ScheduleFreeShow) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n, average := int64(out[0].Elems()), int32(0)
	if k.Average {
		average = 1
	}
	return g.Launch(cuda.Flat("schedule_free", "schedule_free_show", n), out[0].Ptr, g.Copy, in[1].Ptr, in[2].Ptr,
		in[3].Ptr, n, float32(k.Beta1), float32(1-k.Beta1), average)
}
