package kernel

import "github.com/tierlora/tierlora/kernel/gemm"

// ExpertMatMulInt8 is ExpertMatMul with matrices W_e [N,K] that stay in 8 bits, each as MatMulInt8's is. One after the other they
// are one weight [Experts*N,K] in rows.
//
//	y = x_e W_eᵀ   // x f[S,K] -> f[S,N]
//	y = x_e W_e    // Transposed: x f[S,N] -> f[S,K]
//
// Inputs after x: the experts' first rows i32[Experts+1], codes u8[Experts*N*K], the largest magnitudes of rows f32[Experts*N].
type ExpertMatMulInt8 struct {
	Experts, N, K int
	Transposed    bool
}

// expertInt8Inputs is how many inputs there are besides an addend.
const expertInt8Inputs = 4

func (ExpertMatMulInt8) Name() string { return "expert_int8" }

func (k ExpertMatMulInt8) Shape(in []Type) ([]Type, error) {
	return packedExpertsShape(in, k.Experts, expertInt8Inputs, MatMulInt8{N: k.N, K: k.K, Transposed: k.Transposed}.Shape)
}

func (k ExpertMatMulInt8) Grads() Backward {
	other := k
	other.Transposed = !k.Transposed
	return packedGrads(other, expertInt8Inputs-1)
}

func (k ExpertMatMulInt8) Accumulate() (Kernel, bool) { return ExpertMatMulInt8To(k), true }

func (k ExpertMatMulInt8) Scratch(in []Type, _ int) int64 {
	return packedExpertsScratch(in[0].DType, k.N, k.K)
}

func (k ExpertMatMulInt8) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (k ExpertMatMulInt8) bind(c *CPU, in, out []Tensor, beta float64) func() {
	experts := make([]gemm.Dequantiser, k.Experts)
	for e := range experts {
		codes, rows := T(U8, k.N*k.K), T(F32, k.N)
		experts[e] = bindInt8(k.N, k.K, []Tensor{
			NewTensor(codes, part(in[2].Bytes(), e, k.Experts)), NewTensor(rows, part(in[3].Bytes(), e, k.Experts)),
		})
	}
	return bindExperts(c, k.N, k.K, k.Transposed, in, out, beta, func(e int) gemm.Dequantiser { return experts[e] })
}

// ExpertMatMulInt8To adds ExpertMatMulInt8's result for its inputs to the last one, the addend, in the addend's memory.
type ExpertMatMulInt8To ExpertMatMulInt8

func (ExpertMatMulInt8To) Name() string { return "expert_int8" }

func (k ExpertMatMulInt8To) Shape(in []Type) ([]Type, error) {
	return onto(ExpertMatMulInt8(k), in, expertInt8Inputs)
}

func (k ExpertMatMulInt8To) Overwrites() []Alias { return []Alias{{0, expertInt8Inputs}} }

func (k ExpertMatMulInt8To) Scratch(in []Type, workers int) int64 {
	return ExpertMatMulInt8(k).Scratch(in, workers)
}

func (k ExpertMatMulInt8To) CPU(c *CPU, in, out []Tensor) func() {
	return ExpertMatMulInt8(k).bind(c, in, out, 1)
}

func (ExpertMatMulInt8) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

func (ExpertMatMulInt8To) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

func (k ExpertMatMulInt8) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, U8, F32}, []DType{ComputeType}
}

func (k ExpertMatMulInt8) ScratchGPU(in, _ []Type, _ int) int64 {
	return packedExpertsScratchGPU(in[0].DType, k.Experts, k.N, k.K)
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
