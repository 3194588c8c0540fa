package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/quant"
)

// ExpertMatMulMXFP4 is ExpertMatMul with matrices W_e [N,K] that stay in MXFP4, in blocks of 32 along K, a multiple of 32.
//
//	y = x_e W_eᵀ   // x f[S,K] -> f[S,N]
//	y = x_e W_e    // Transposed: x f[S,N] -> f[S,K]
//
// Inputs after x: the experts' first rows i32[Experts+1], codes u8[Experts*N*K/2], two a byte, the first in the low nibble, and
// scales u8[Experts*N*K/32] in E8M0, none of them above quant.MXFP4MaxScale.
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
		return nil, fmt.Errorf("a matrix [%d,%d] is not in MXFP4: its rows must be a multiple of %d long", k.N, k.K, quant.MXFP4Block)
	}
	width, result := k.K, k.N
	if k.Transposed {
		width, result = k.N, k.K
	}
	n := k.Experts * k.N * k.K
	d, err := Want(in, fmt.Sprintf("f[S,%d]", width), "i32[P]", fmt.Sprintf("u8[%d]", n/2), fmt.Sprintf("u8[%d]", n/quant.MXFP4Block))
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
	return Backward{Calls: []Call{{other, []Ref{Upstream(), In(1), In(2), In(3)}}}, Grads: []Ref{FromCall(0, 0), {}, {}, {}}}
}

func (k ExpertMatMulMXFP4) Accumulate() (Kernel, bool) { return ExpertMatMulMXFP4To(k), true }

func (k ExpertMatMulMXFP4) Scratch(in []Type, _ int) int64 {
	return packedExpertsScratch(in[0].DType, k.N, k.K)
}

func (k ExpertMatMulMXFP4) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (k ExpertMatMulMXFP4) bind(c *CPU, in, out []Tensor, beta float64) func() {
	experts := make([]quant.MXFP4, k.Experts)
	for e := range experts {
		experts[e] = quant.MXFP4{Rows: k.N, Cols: k.K, Codes: part(in[2].Bytes(), e, k.Experts), Scales: part(in[3].Bytes(), e, k.Experts)}
	}
	return bindExperts(c, k.N, k.K, k.Transposed, in, out, beta, func(e int) gemm.Dequantiser { return &experts[e] })
}

// ExpertMatMulMXFP4To adds ExpertMatMulMXFP4's result for its first four inputs to the fifth, in the fifth one's memory.
type ExpertMatMulMXFP4To ExpertMatMulMXFP4

func (ExpertMatMulMXFP4To) Name() string { return "expert_mxfp4" }

func (k ExpertMatMulMXFP4To) Shape(in []Type) ([]Type, error) {
	return onto(ExpertMatMulMXFP4(k), in, 4)
}

func (ExpertMatMulMXFP4To) Overwrites() []Alias { return []Alias{{0, 4}} }

func (k ExpertMatMulMXFP4To) Scratch(in []Type, workers int) int64 {
	return ExpertMatMulMXFP4(k).Scratch(in, workers)
}

func (k ExpertMatMulMXFP4To) CPU(c *CPU, in, out []Tensor) func() {
	return ExpertMatMulMXFP4(k).bind(c, in, out, 1)
}

func (ExpertMatMulMXFP4) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

func (ExpertMatMulMXFP4To) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

func (k ExpertMatMulMXFP4) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, U8, U8}, []DType{ComputeType}
}

func (k ExpertMatMulMXFP4) ScratchGPU(in, _ []Type, _ int) int64 {
	return packedExpertsScratchGPU(in[0].DType, k.Experts, k.N, k.K)
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
