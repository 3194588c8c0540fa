package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// expertShape is the sizes of a GEMM for each of some experts on a GPU, [rows,k] by [k,n], and how its operands are stored.
type expertShape struct {
	experts, rows, n, k int
	operand             DType
}

// hopper tells whether the wgmma kernel serves.
func (p expertShape) hopper(sm int) bool {
	return sm == 90 && p.operand != F32 && cuda.ExpertsByHopper(p.rows, p.n, p.k, p.experts)
}

// up tells whether the kernel for a small depth serves.
func (p expertShape) up() bool { return p.k <= 64 && p.k%8 == 0 && p.n > 32 && p.n%8 == 0 }

func (k ExpertMatMul) Stored(in []DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{ComputeType}
}

func (k ExpertMatMulTo) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, ComputeType}, []DType{ComputeType}
}

func (k ExpertWeightGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{F32}
}

func (k ExpertWeightGradTo) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, F32}, []DType{F32}
}

func (k ExpertMatMulNF4) Stored([]DType) (want, out []DType) {
	want = []DType{ComputeType, I32, U8, F32}
	if k.Nested {
		want = []DType{ComputeType, I32, U8, U8, F32, F32}
	}
	return want, []DType{ComputeType}
}

func (k ExpertMatMulNF4) ScratchGPU(in, _ []Type, _ int) int64 {
	return packedExpertsScratchGPU(in[0].DType, k.Experts, k.N, k.K)
}

// packedExpertsScratchGPU is all experts' matrices, dequantised to the type of x.
func packedExpertsScratchGPU(x DType, experts, n, k int) int64 {
	return int64(experts) * int64(n) * int64(k) * int64(x.Size())
}

// PrologueGPU marks the dequantising of the weights, which waits for no activation.
func (ExpertMatMulNF4) PrologueGPU() {}

func (k ExpertMatMulNF4To) Stored(in []DType) (want, out []DType) {
	want, out = ExpertMatMulNF4(k).Stored(in)
	return append(want, ComputeType), out
}

func (k ExpertMatMulNF4To) ScratchGPU(in, out []Type, sm int) int64 {
	return ExpertMatMulNF4(k).ScratchGPU(in, out, sm)
}

func (ExpertMatMulNF4To) PrologueGPU() {}
