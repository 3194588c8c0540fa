//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k ExpertMatMulInt8) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, U8, F32}, []DType{ComputeType}
}

func (k ExpertMatMulInt8) ScratchGPU(in, _ []Type, _ int) int64 {
	return packedExpertsScratchGPU(in[0].DType, k.Experts, k.N, k.K)
}

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

// PrologueGPU marks the dequantising of the weights, which waits for no activation.
func (ExpertMatMulInt8) PrologueGPU() {}

func (k ExpertMatMulInt8To) Stored(in []DType) (want, out []DType) {
	want, out = ExpertMatMulInt8(k).Stored(in)
	return append(want, ComputeType), out
}

func (k ExpertMatMulInt8To) ScratchGPU(in, out []Type, sm int) int64 {
	return ExpertMatMulInt8(k).ScratchGPU(in, out, sm)
}

func (ExpertMatMulInt8To) PrologueGPU() {}

func (k ExpertMatMulInt8To) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return ExpertMatMulInt8(k).bindGPU(g, in, out, 1, expertLow{})
}
