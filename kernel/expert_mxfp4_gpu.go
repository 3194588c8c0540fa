//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k ExpertMatMulMXFP4) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0, expertLow{})
}

func (k ExpertMatMulMXFP4) bindGPU(g *GPU, in, out []DeviceTensor, beta float32, low expertLow) (func() error, error) {
	n := int64(k.Experts) * int64(k.N) * int64(k.K)
	dequantise, err := g.Launch(cuda.ExpertMXFP4(n), g.Scratch, in[2].Ptr, in[3].Ptr, n)
	if err != nil {
		return nil, err
	}
	return bindPackedExperts(g, dequantise, k.Experts, k.N, k.K, k.Transposed, in, out, beta, low)
}

func (k ExpertMatMulMXFP4To) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return ExpertMatMulMXFP4(k).bindGPU(g, in, out, 1, expertLow{})
}
