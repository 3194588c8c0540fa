//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k MatMulInt8) Stored([]DType) (want, out []DType) {
	want = []DType{ComputeType, U8, F32}
	if k.FP32Out {
		return want, []DType{F32}
	}
	return want, []DType{ComputeType}
}

func (k MatMulInt8) ScratchGPU(in, out []Type, sm int) int64 {
	return packedScratchGPU(in[0], out[0], k.N, k.K, k.Transposed, k.RowsApart, sm)
}

func (k MatMulInt8) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k MatMulInt8) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	return bindPackedGPU(g, in[0], out[0], k.N, k.K, k.Transposed, k.RowsApart, beta, cuda.Int8Dequantise(k.N, k.K), g.Scratch, in[1].Ptr, in[2].Ptr, int32(k.K))
}

// PrologueGPU marks the dequantising of the weight, which waits for no activation.
func (MatMulInt8) PrologueGPU() {}

func (k MatMulInt8To) Stored(in []DType) (want, out []DType) {
	want, _ = MatMulInt8(k).Stored(in)
	return append(want, in[int8Inputs]), []DType{in[int8Inputs]}
}

func (k MatMulInt8To) ScratchGPU(in, out []Type, sm int) int64 {
	return MatMulInt8(k).ScratchGPU(in, out, sm)
}

func (MatMulInt8To) PrologueGPU() {}

func (k MatMulInt8To) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return MatMulInt8(k).bindGPU(g, in, out, 1)
}
