//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k DequantiseInt8) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return g.Launch(cuda.Int8Dequantise(k.N, k.K), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(k.K))
}
