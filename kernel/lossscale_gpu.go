//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (k LossScale) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return g.Launch(cuda.LossScale(), out[0].Ptr, in[1].Ptr.Add(4), in[2].Ptr, int32(min(k.Interval, 1<<24)))
}

// scalingAt returns the address of a Scaled kernel's last input, 0 where there is none.
func scalingAt(scaled bool, in []DeviceTensor) gpu.Ptr {
	if scaled {
		return in[len(in)-1].Ptr
	}
	return 0
}
