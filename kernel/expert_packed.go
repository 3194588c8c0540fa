package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/quant"
)

// ExpertMatMulNF4 is ExpertMatMul with matrices W_e [N,K] that stay packed, each as MatMulNF4's is.
//
//	y = x_e W_eᵀ   // x f[S,K] -> f[S,N]
//	y = x_e W_e    // Transposed: x f[S,N] -> f[S,K]
//
// Inputs after x: the experts' first rows i32[Experts+1], then MatMulNF4's inputs, each the experts' one after the
// other.
type ExpertMatMulNF4 struct {
	Experts, N, K int
	Nested        bool
	Transposed    bool
	Map           quant.NestedMap
	FP4           bool
}

func (ExpertMatMulNF4) Name() string { return "expert_nf4" }

// one returns an expert's GEMM.
func (k ExpertMatMulNF4) one() MatMulNF4 {
	return MatMulNF4{N: k.N, K: k.K, Nested: k.Nested, Transposed: k.Transposed, Map: k.Map, FP4: k.FP4}
}

// inputs returns how many inputs there are besides an addend.
func (k ExpertMatMulNF4) inputs() int { return 1 + k.one().inputs() }

func (k ExpertMatMulNF4) Shape(in []Type) ([]Type, error) {
	return packedExpertsShape(in, k.Experts, k.inputs(), k.one().Shape)
}

// packedExpertsShape checks a grouped GEMM whose matrices stay packed: x, the experts' first rows, then vectors of
// which each expert has an equal part, as one's shape takes them after x.
func packedExpertsShape(in []Type, experts, inputs int, one func(in []Type) ([]Type, error)) ([]Type, error) {
	if len(in) != inputs {
		return nil, fmt.Errorf("takes %d inputs, got %d", inputs, len(in))
	}
	d, err := Want(in[:2], "f[S,K]", "i32[P]")
	if err != nil {
		return nil, err
	}
	if err := (ExpertMatMul{Experts: experts}).checkStarts(in[1], d.At('P')); err != nil {
		return nil, err
	}
	each := []Type{in[0]}
	for i, t := range in[2:] {
		if len(t.Shape) != 1 || t.Shape[0]%experts != 0 {
			return nil, fmt.Errorf("input %d is %v, want a vector of %d equal parts", i+2, t, experts)
		}
		each = append(each, T(t.DType, t.Shape[0]/experts))
	}
	out, err := one(each)
	if err != nil {
		return nil, fmt.Errorf("each expert's matrix: %w", err)
	}
	return out, nil
}

func (k ExpertMatMulNF4) Grads() Backward {
	other := k
	other.Transposed = !k.Transposed
	call := Call{Kernel: other, In: []Ref{Upstream()}}
	for i := 1; i < k.inputs(); i++ {
		call.In = append(call.In, In(i))
	}
	grads := make([]Ref, k.inputs())
	grads[0] = FromCall(0, 0)
	return Backward{Calls: []Call{call}, Grads: grads}
}

func (k ExpertMatMulNF4) Accumulate() (Kernel, bool) { return Onto[ExpertMatMulNF4]{k}, true }

func (k ExpertMatMulNF4) Scratch(in []Type, _ int) int64 {
	return packedExpertsScratch(in[0].DType, k.N, k.K)
}

func (k ExpertMatMulNF4) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (k ExpertMatMulNF4) accumulation() accumulation {
	return accumulation{inputs: k.inputs(), results: 1}
}

func (k ExpertMatMulNF4) bind(c *CPU, in, out []Tensor, beta float64) func() {
	experts := make([]*packedRows, k.Experts)
	load := make([]func(), 0, k.Experts)
	for e := range experts {
		parts := make([]Tensor, k.inputs()-2)
		for i, t := range in[2:k.inputs()] {
			each := T(t.DType, t.Shape[0]/k.Experts)
			parts[i] = NewTensor(each, part(t.Bytes(), e, k.Experts))
		}
		var first func()
		experts[e], first = bindFourBits(k.one().scheme(), k.N, k.K, parts)
		load = append(load, first)
	}
	multiply := bindExperts(c, k.N, k.K, k.Transposed, in, out, beta,
		func(e int) gemm.Dequantiser { return experts[e] })
	return func() {
		for _, f := range load {
			f()
		}
		multiply()
	}
}

// packedExpertsScratch returns bindExperts' scratch: of float64 one expert's matrix [n,k], and a row of it in float32.
func packedExpertsScratch(x DType, n, k int) int64 {
	if x != F64 {
		return 0
	}
	return T(F64, n, k).Bytes() + T(F64, k).Bytes()
}

// bindExperts multiplies in[0] by matrices [n,k] that stay packed, or by their transposes; in[1] has the experts' first
// rows.
func bindExperts(c *CPU, n, k int, transposed bool, in, out []Tensor, beta float64,
	of func(e int) gemm.Dequantiser) func() {
	if in[0].DType == F64 {
		one := NewTensor(T(F64, n*k), c.Scratch).F64()
		row := NewTensor(T(F32, k), c.Scratch[T(F64, n, k).Bytes():]).F32()
		return expertGemm(c, !transposed, in[0], in[1], out[0], 1, beta, func(e int) []float64 {
			for i := range n {
				of(e).DequantiseRange(row, i*k, (i+1)*k)
				convert(one[i*k:][:k], row)
			}
			return one
		})
	}
	return expertGemmDequantised(c, !transposed, in[0], in[1], out[0], 1, float32(beta), func(dst []float32, e, i int) {
		of(e).DequantiseRange(dst, i, i+len(dst))
	})
}

// part returns the e-th of n equal parts.
func part[E any](x []E, e, n int) []E { return x[e*(len(x)/n):][:len(x)/n] }

func (ExpertMatMulNF4) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

// ExpertMatMulInt8 is ExpertMatMul with matrices W_e [N,K] that stay in 8 bits, each as MatMulInt8's is. One after the
// other they are one weight [Experts*N,K] in rows.
//
//	y = x_e W_eᵀ   // x f[S,K] -> f[S,N]
//	y = x_e W_e    // Transposed: x f[S,N] -> f[S,K]
//
// Inputs after x: the experts' first rows i32[Experts+1], codes u8[Experts*N*K], the largest magnitudes of rows
// f32[Experts*N].
type ExpertMatMulInt8 struct {
	Experts, N, K int
	Transposed    bool
}

// expertInt8Inputs is how many inputs there are besides an addend.
const expertInt8Inputs = 4

func (ExpertMatMulInt8) Name() string { return "expert_int8" }

func (k ExpertMatMulInt8) Shape(in []Type) ([]Type, error) {
	return packedExpertsShape(in, k.Experts, expertInt8Inputs,
		MatMulInt8{N: k.N, K: k.K, Transposed: k.Transposed}.Shape)
}

func (k ExpertMatMulInt8) Grads() Backward {
	other := k
	other.Transposed = !k.Transposed
	return packedGrads(other, expertInt8Inputs-1)
}

func (k ExpertMatMulInt8) Accumulate() (Kernel, bool) { return Onto[ExpertMatMulInt8]{k}, true }

func (k ExpertMatMulInt8) Scratch(in []Type, _ int) int64 {
	return packedExpertsScratch(in[0].DType, k.N, k.K)
}

func (k ExpertMatMulInt8) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (ExpertMatMulInt8) accumulation() accumulation {
	return accumulation{inputs: expertInt8Inputs, results: 1}
}

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

func (ExpertMatMulInt8) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

func (k ExpertMatMulInt8) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, U8, F32}, []DType{ComputeType}
}

func (k ExpertMatMulInt8) ScratchGPU(in, _ []Type, _ int) int64 {
	return packedExpertsScratchGPU(in[0].DType, k.Experts, k.N, k.K)
}

// PrologueGPU marks the dequantising of the weights, which waits for no activation.
func (ExpertMatMulInt8) PrologueGPU() bool { return true }

// ExpertMatMulMXFP4 is ExpertMatMul with matrices W_e [N,K] that stay in MXFP4, in blocks of 32 along K, a multiple of
// 32.
//
//	y = x_e W_eᵀ   // x f[S,K] -> f[S,N]
//	y = x_e W_e    // Transposed: x f[S,N] -> f[S,K]
//
// Inputs after x: the experts' first rows i32[Experts+1], codes u8[Experts*N*K/2], two a byte, the first in the low
// nibble, and scales u8[Experts*N*K/32] in E8M0, none of them above quant.MXFP4MaxScale.
type ExpertMatMulMXFP4 struct {
	Experts, N, K int
	Transposed    bool
}

func (ExpertMatMulMXFP4) Name() string { return "expert_mxfp4" }

func (k ExpertMatMulMXFP4) Shape(in []Type) ([]Type, error) {
	if err := checkPacked(k.N, k.K); err != nil {
		return nil, err
	}
	if err := (ExpertMatMul{Experts: k.Experts}).checkStarts(Type{}, k.Experts+1); err != nil {
		return nil, err
	}
	if k.K%quant.MXFP4Block != 0 {
		return nil, fmt.Errorf("a matrix [%d,%d] is not in MXFP4: its rows must be a multiple of %d long", k.N, k.K,
			quant.MXFP4Block)
	}
	width, result := k.K, k.N
	if k.Transposed {
		width, result = k.N, k.K
	}
	n := k.Experts * k.N * k.K
	d, err := Want(in, fmt.Sprintf("f[S,%d]", width), "i32[P]", fmt.Sprintf("u8[%d]", n/2),
		fmt.Sprintf("u8[%d]", n/quant.MXFP4Block))
	if err != nil {
		return nil, err
	}
	if err := (ExpertMatMul{Experts: k.Experts}).checkStarts(in[1], d.At('P')); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('S'), result)}, nil
}

func (k ExpertMatMulMXFP4) Grads() Backward {
	other := k
	other.Transposed = !k.Transposed
	return Backward{Calls: []Call{{other, []Ref{Upstream(), In(1), In(2), In(3)}}},
		Grads: []Ref{FromCall(0, 0), {}, {}, {}}}
}

func (k ExpertMatMulMXFP4) Accumulate() (Kernel, bool) { return Onto[ExpertMatMulMXFP4]{k}, true }

func (k ExpertMatMulMXFP4) Scratch(in []Type, _ int) int64 {
	return packedExpertsScratch(in[0].DType, k.N, k.K)
}

func (k ExpertMatMulMXFP4) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (ExpertMatMulMXFP4) accumulation() accumulation { return accumulation{inputs: 4, results: 1} }

func (k ExpertMatMulMXFP4) bind(c *CPU, in, out []Tensor, beta float64) func() {
	experts := make([]quant.MXFP4, k.Experts)
	for e := range experts {
		experts[e] = quant.MXFP4{Rows: k.N, Cols: k.K, Codes: part(in[2].Bytes(), e, k.Experts),
			Scales: part(in[3].Bytes(), e, k.Experts)}
	}
	return bindExperts(c, k.N, k.K, k.Transposed, in, out, beta, func(e int) gemm.Dequantiser { return &experts[e] })
}

func (ExpertMatMulMXFP4) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

func (k ExpertMatMulMXFP4) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, U8, U8}, []DType{ComputeType}
}

func (k ExpertMatMulMXFP4) ScratchGPU(in, _ []Type, _ int) int64 {
	return packedExpertsScratchGPU(in[0].DType, k.Experts, k.N, k.K)
}

// PrologueGPU marks the dequantising of the weights, which waits for no activation.
func (ExpertMatMulMXFP4) PrologueGPU() bool { return true }
