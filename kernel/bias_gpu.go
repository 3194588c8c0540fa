//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (AddBias) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, N := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.Flat("bias", "bias_add", (int64(M)*int64(N)+7)/8), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M), int32(N))
}
