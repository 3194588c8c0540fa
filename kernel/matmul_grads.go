package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// MatMulGrads is both gradients of a low-rank GEMM y = Alpha t bᵀ, for plans of a GPU, which reads dy once.
//
//	dt = Alpha dy b           // f[M,R]; dy f[M,C], b w[C,R]
//	db = db0 + Alpha dyᵀ t    // f[C,R], in db0's memory; t f[M,R]
//
// Inputs: dy, b, t, db0.
type MatMulGrads struct{ Alpha float64 }

// Name returns MatMul's, whose calls it stands for.
func (MatMulGrads) Name() string { return "matmul" }

func (k MatMulGrads) first() MatMul { return MatMul{Alpha: k.Alpha} }

func (k MatMulGrads) second() Onto[MatMul] { return Onto[MatMul]{MatMul{TransA: true, Alpha: k.Alpha}} }

// gradsOperands returns the operands of either GEMM in its order.
func gradsOperands[T any](all []T) (first, second []T) {
	return all[:2], []T{all[0], all[2], all[3]}
}

// Shape checks that t is as dt and the addend as db.
func (k MatMulGrads) Shape(in []Type) ([]Type, error) {
	if len(in) != 4 {
		return nil, fmt.Errorf("takes dy, b, t and an addend, got %d inputs", len(in))
	}
	first, second := gradsOperands(in)
	dt, err := k.first().Shape(first)
	if err != nil {
		return nil, fmt.Errorf("dt: %w", err)
	}
	db, err := k.second().Shape(second)
	if err != nil {
		return nil, fmt.Errorf("db: %w", err)
	}
	if !dt[0].Equal(in[2]) {
		return nil, fmt.Errorf("dt is %v, t is %v", dt[0], in[2])
	}
	return []Type{dt[0], db[0]}, nil
}

// Overwrites says that db is in the addend's memory.
func (MatMulGrads) Overwrites() []Alias { return []Alias{{1, 3}} }

// Scratch returns the larger of the two GEMMs'.
func (k MatMulGrads) Scratch(in []Type, workers int) int64 {
	first, second := gradsOperands(in)
	return max(k.first().Scratch(first, workers), k.second().Scratch(second, workers))
}

// CPU runs one GEMM after the other.
func (k MatMulGrads) CPU(c *CPU, in, out []Tensor) func() {
	first, second := gradsOperands(in)
	return allOf([]func(){k.first().CPU(c, first, out[:1]), k.second().CPU(c, second, out[1:])})
}

// Cost counts dy once.
func (k MatMulGrads) Cost(in, out []Type, c Content) Cost {
	first, _ := gradsOperands(in)
	return Cost{Bytes: moved(in, out), FLOPs: 2 * k.first().Cost(first, out[:1], c).FLOPs}
}

// Stored keeps the addend's type for db.
func (MatMulGrads) Stored(in []DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, in[3]}, []DType{ComputeType, in[3]}
}

// ScratchGPU returns what the blocks' shares take, or the two GEMMs.
func (k MatMulGrads) ScratchGPU(in, out []Type, sm int) int64 {
	first, second := gradsOperands(in)
	n := max(k.first().ScratchGPU(first, out[:1], sm), k.second().ScratchGPU(second, out[1:], sm))
	if l, ok := gradsLaunch(in[0], in[1], sm); ok {
		n = max(n, l.Grads().Scratch())
	}
	return n
}

// gradsLaunch returns how both gradients run as one, by the types of dy and b as stored.
func gradsLaunch(dy, b Type, sm int) (l cuda.LowRank, ok bool) {
	l = cuda.LowRank{Count: 1, M: dy.Shape[0], C: dy.Shape[1], R: b.Shape[1]}
	return l, sm == 90 && dy.DType != F32 && l.FitsGrads()
}

// FitsMatMulGrads tells whether a GPU of compute capability sm, with 16-bit values, makes both gradients of a low-rank
// GEMM faster as one, by the types of dy and b.
func FitsMatMulGrads(dy, b Type, sm int) bool {
	dy.DType = ComputeType
	l, ok := gradsLaunch(dy, b, sm)
	return ok && l.LargeGrads()
}
