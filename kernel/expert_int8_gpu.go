//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k ExpertMatMulInt8) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0, expertLow{})
}

func (k ExpertMatMulInt8) bindGPU(g *GPU, in, out []DeviceTensor, beta float32, low expertLow) (func() error, error) {
	dequantise, err := g.Launch(cuda.Int8Dequantise(k.Experts*k.N, k.K), g.Scratch, in[2].Ptr, in[3].Ptr, int32(k.K))
	if err != nil {
		return nil, err
	}
	return bindPackedExperts(g, dequantise, k.Experts, k.N, k.K, k.Transposed, in, out, beta, low)
}

func (k ExpertMatMulInt8To) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return ExpertMatMulInt8(k).bindGPU(g, in, out, 1, expertLow{})
}
