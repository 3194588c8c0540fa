package kernel

import (
	"github.com/tierlora/tierlora/quant"
)

// MatMulInt8 is the GEMM with a frozen weight W [N,K] that stays in 8 bits, a scale for each row (LLM.int8(), Dettmers
// et al. 2022), dequantised piece by piece while it is multiplied.
//
//	y = x Wᵀ   // x f[M,K] -> f[M,N]
//	y = x W    // Transposed: x f[M,N] -> f[M,K]
//
// Inputs after x: codes u8[N*K], signed bytes; the largest magnitude of each row, f32[N]: W = code * scale * (1/127) in
// fp32. x stays what it is: there is no outlier threshold.
//
// A GPU stores y as activations are, or with FP32Out as fp32.
type MatMulInt8 struct {
	N, K       int
	Transposed bool
	FP32Out    bool
	RowsApart  bool // see RowsApart
}

var int8Scheme = quant.DefaultOf("int8")

// int8Inputs is how many inputs there are besides an addend.
const int8Inputs = 3

func (MatMulInt8) Name() string { return "int8" }

func (k MatMulInt8) Shape(in []Type) ([]Type, error) {
	return packedShape(in, k.N, k.K, k.Transposed, int8Scheme)
}

func (k MatMulInt8) Grads() Backward {
	other := k
	other.Transposed, other.FP32Out = !k.Transposed, false
	return packedGrads(other, int8Inputs-1)
}

func (k MatMulInt8) Accumulate() (Kernel, bool) { return Onto[MatMulInt8]{k}, true }

func (k MatMulInt8) WithFP32Out() (Kernel, bool) {
	k.FP32Out = true
	return k, true
}

func (k MatMulInt8) WithRowsApart() Kernel {
	k.RowsApart = true
	return k
}

func (k MatMulInt8) Scratch(in []Type, _ int) int64 { return packedScratch(in[0].DType, k.N, k.K) }

func (k MatMulInt8) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (MatMulInt8) accumulation() accumulation {
	return accumulation{inputs: int8Inputs, results: 1, anyType: true}
}

func (k MatMulInt8) bind(c *CPU, in, out []Tensor, beta float64) func() {
	return bindPacked(c, in[0], out[0], bindInt8(k.N, k.K, in[1:]), k.N, k.K, k.Transposed, beta, func() {})
}

// bindInt8 returns the weight whose parts lie in memory.
func bindInt8(n, k int, parts []Tensor) *quant.Packed {
	return &quant.Packed{Scheme: quant.Schemes["int8"], Rows: n, Cols: k, BlockSize: k, Codes: parts[0].Bytes(),
		Absmax: parts[1].F32()}
}

func (MatMulInt8) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

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

// PrologueGPU marks the dequantising of the weight, which waits for no activation.
func (MatMulInt8) PrologueGPU() bool { return true }

// DequantiseInt8 is the weight that one in 8 bits stands for, in numbers, as in MatMulInt8.
//
//	codes u8[N*K], scale f32[N] -> w [N,K] of type Float
type DequantiseInt8 struct {
	N, K  int
	Float DType // F32 or F64
}

func (DequantiseInt8) Name() string { return "int8_dequantise" }

func (k DequantiseInt8) Shape(in []Type) ([]Type, error) {
	return dequantisedShape(in, k.N, k.K, k.Float, int8Scheme)
}

func (k DequantiseInt8) CPU(c *CPU, in, out []Tensor) func() {
	return bindDequantise(c, out[0], bindInt8(k.N, k.K, in), k.N, k.K, func() {})
}

func (DequantiseInt8) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (DequantiseInt8) Stored([]DType) (want, out []DType) {
	return []DType{U8, F32}, []DType{ComputeType}
}
