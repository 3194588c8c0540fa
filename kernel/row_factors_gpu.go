//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (RowFactors) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RowFactors(M, C), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(in[2].Shape[0]), int32(C))
}
