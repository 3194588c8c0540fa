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
// Inputs after x: the experts' first rows i32[Experts+1], then MatMulNF4's inputs, each the experts' one after the other.
type ExpertMatMulNF4 struct {
	Experts, N, K int
	Nested        bool
	Transposed    bool
	Map           quant.NestedMap
	FP4           bool
}

func (ExpertMatMulNF4) Name() string { return "expert_nf4" }

// one is an expert's GEMM.
func (k ExpertMatMulNF4) one() MatMulNF4 {
	return MatMulNF4{N: k.N, K: k.K, Nested: k.Nested, Transposed: k.Transposed, Map: k.Map, FP4: k.FP4}
}

// inputs is how many inputs there are besides an addend.
func (k ExpertMatMulNF4) inputs() int { return 1 + k.one().inputs() }

func (k ExpertMatMulNF4) Shape(in []Type) ([]Type, error) {
	return packedExpertsShape(in, k.Experts, k.inputs(), k.one().Shape)
}

// packedExpertsShape checks a grouped GEMM whose matrices stay packed: x, the experts' first rows, then vectors of which each expert has an
// equal part, as one's shape takes them after x.
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

func (k ExpertMatMulNF4) Accumulate() (Kernel, bool) { return ExpertMatMulNF4To(k), true }

func (k ExpertMatMulNF4) Scratch(in []Type, _ int) int64 {
	return packedExpertsScratch(in[0].DType, k.N, k.K)
}

func (k ExpertMatMulNF4) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

// ExpertMatMulNF4To adds ExpertMatMulNF4's result for its inputs to the last one, the addend, in the addend's memory.
type ExpertMatMulNF4To ExpertMatMulNF4

func (ExpertMatMulNF4To) Name() string { return "expert_nf4" }

func (k ExpertMatMulNF4To) Shape(in []Type) ([]Type, error) {
	return onto(ExpertMatMulNF4(k), in, ExpertMatMulNF4(k).inputs())
}

func (k ExpertMatMulNF4To) Overwrites() []Alias { return []Alias{{0, ExpertMatMulNF4(k).inputs()}} }

func (k ExpertMatMulNF4To) Scratch(in []Type, workers int) int64 {
	return ExpertMatMulNF4(k).Scratch(in, workers)
}

func (k ExpertMatMulNF4To) CPU(c *CPU, in, out []Tensor) func() {
	return ExpertMatMulNF4(k).bind(c, in, out, 1)
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
	multiply := bindExperts(c, k.N, k.K, k.Transposed, in, out, beta, func(e int) gemm.Dequantiser { return experts[e] })
	return func() {
		for _, f := range load {
			f()
		}
		multiply()
	}
}

// packedExpertsScratch is bindExperts' scratch: of float64 one expert's matrix [n,k], and a row of it in float32.
func packedExpertsScratch(x DType, n, k int) int64 {
	if x != F64 {
		return 0
	}
	return T(F64, n, k).Bytes() + T(F64, k).Bytes()
}

// bindExperts multiplies in[0] by matrices [n,k] that stay packed, or by their transposes; in[1] has the experts' first rows.
func bindExperts(c *CPU, n, k int, transposed bool, in, out []Tensor, beta float64, of func(e int) gemm.Dequantiser) func() {
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

// part is the e-th of n equal parts.
func part[E any](x []E, e, n int) []E { return x[e*(len(x)/n):][:len(x)/n] }

func (ExpertMatMulNF4) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

func (ExpertMatMulNF4To) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}
