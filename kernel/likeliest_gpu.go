//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (Likeliest) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return g.Launch(cuda.Likeliest(in[0].Shape[0]), out[0].Ptr, in[0].Ptr, int32(in[0].Shape[1]))
}
