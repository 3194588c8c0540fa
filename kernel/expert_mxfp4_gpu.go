//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k ExpertMatMulMXFP4) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, U8, U8}, []DType{ComputeType}
}

func (k ExpertMatMulMXFP4) ScratchGPU(in, _ []Type, _ int) int64 {
	return packedExpertsScratchGPU(in[0].DType, k.Experts, k.N, k.K)
}

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

// PrologueGPU marks the dequantising of the weights, which waits for no activation.
func (ExpertMatMulMXFP4) PrologueGPU() {}

func (k ExpertMatMulMXFP4To) Stored(in []DType) (want, out []DType) {
	want, out = ExpertMatMulMXFP4(k).Stored(in)
	return append(want, ComputeType), out
}

func (k ExpertMatMulMXFP4To) ScratchGPU(in, out []Type, sm int) int64 {
	return ExpertMatMulMXFP4(k).ScratchGPU(in, out, sm)
}

func (ExpertMatMulMXFP4To) PrologueGPU() {}

func (k ExpertMatMulMXFP4To) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return ExpertMatMulMXFP4(k).bindGPU(g, in, out, 1, expertLow{})
}
