//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU draws from each row in a block.
func (Draw) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return g.Launch(cuda.Draw(in[0].Shape[0]), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, int32(in[0].Shape[1]))
}
