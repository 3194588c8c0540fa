//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
)

func (k MatMulInt8) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k MatMulInt8) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	return bindPackedGPU(g, in[0], out[0], k.N, k.K, k.Transposed, k.RowsApart, beta, cuda.Int8Dequantise(k.N, k.K),
		g.Scratch, in[1].Ptr, in[2].Ptr, int32(k.K))
}

func (k DequantiseInt8) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return g.Launch(cuda.Int8Dequantise(k.N, k.K), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(k.K))
}
