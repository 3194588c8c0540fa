package kernel

import (
	"fmt"
	"slices"
)

// GroupedMatMul is N GEMMs that share an operand, for plans of a GPU, which reads it once.
//
//	y_i = Alpha x op(w_i)    // f[M,R]; x f[M,C], w_1 ... w_N each w[C,R], or w[R,C] with TransB
//	y_i = Alpha w_iᵀ x       // f[R,C] with TransA; x f[M,C], w_1 ... w_N each f[M,R]
type GroupedMatMul struct {
	N              int
	TransA, TransB bool
	Alpha          float64
}

func (GroupedMatMul) Name() string { return "matmul" }

func (k GroupedMatMul) Shape(in []Type) ([]Type, error) {
	if k.N < 1 || len(in) != 1+k.N {
		return nil, fmt.Errorf("takes a shared operand and %d others, got %d inputs", k.N, len(in))
	}
	out := make([]Type, k.N)
	for i := range out {
		y, err := k.one().Shape(each(k, in[0], in[1+i]))
		if err != nil {
			return nil, fmt.Errorf("GEMM %d: %w", i, err)
		}
		out[i] = y[0]
	}
	return out, nil
}

func (k GroupedMatMul) one() MatMul {
	return MatMul{TransA: k.TransA, TransB: k.TransB, Alpha: k.Alpha}
}

// each are the operands of one GEMM in MatMul's order.
func each[T any](k GroupedMatMul, shared, own T) []T {
	if k.TransA {
		return []T{own, shared}
	}
	return []T{shared, own}
}

func (k GroupedMatMul) Scratch(in []Type, workers int) int64 {
	var n int64
	for _, own := range in[1 : 1+k.N] {
		n = max(n, k.one().Scratch(each(k, in[0], own), workers))
	}
	return n
}

func (k GroupedMatMul) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (k GroupedMatMul) bind(c *CPU, in, out []Tensor, beta float64) func() {
	work := make([]func(), k.N)
	for i := range work {
		work[i] = k.one().bind(c, each(k, in[0], in[1+i]), out[i:i+1], beta)
	}
	return allOf(work)
}

func allOf(work []func()) func() {
	return func() {
		for _, w := range work {
			w()
		}
	}
}

// GroupedMatMulTo adds GroupedMatMul's results for the first 1 + N inputs to the other N, in their memory.
type GroupedMatMulTo GroupedMatMul

func (GroupedMatMulTo) Name() string { return "matmul" }

func (k GroupedMatMulTo) Shape(in []Type) ([]Type, error) {
	if k.N < 1 || len(in) != 1+2*k.N {
		return nil, fmt.Errorf("takes a shared operand, %d others and as many addends, got %d inputs", k.N, len(in))
	}
	out, err := GroupedMatMul(k).Shape(in[:1+k.N])
	if err != nil {
		return nil, err
	}
	for i := range out {
		if !in[1+k.N+i].Equal(out[i]) {
			return nil, fmt.Errorf("addend %d is %v, the result is %v", i, in[1+k.N+i], out[i])
		}
	}
	return out, nil
}

func (k GroupedMatMulTo) Overwrites() []Alias {
	a := make([]Alias, k.N)
	for i := range a {
		a[i] = Alias{Out: i, In: 1 + k.N + i}
	}
	return a
}

func (k GroupedMatMulTo) Scratch(in []Type, workers int) int64 {
	return GroupedMatMul(k).Scratch(in, workers)
}

func (k GroupedMatMulTo) CPU(c *CPU, in, out []Tensor) func() {
	return GroupedMatMul(k).bind(c, in, out, 1)
}

func (k GroupedMatMul) Cost(in, out []Type, c Content) Cost {
	cost := Cost{Bytes: moved(in, out)}
	for i := range k.N {
		cost.FLOPs += k.one().Cost(each(k, in[0], in[1+i]), out[i:i+1], c).FLOPs
	}
	return cost
}

func (k GroupedMatMulTo) Cost(in, out []Type, c Content) Cost {
	return GroupedMatMul(k).Cost(in, out, c)
}

func (k GroupedMatMul) Stored([]DType) (want, out []DType) {
	return slices.Repeat([]DType{ComputeType}, 1+k.N), slices.Repeat([]DType{ComputeType}, k.N)
}

func (k GroupedMatMul) ScratchGPU(in, out []Type, sm int) int64 {
	p := k.one().op(each(k, in[0], in[1]), out, 0)
	return max(p.lowRankScratch(k.N), p.scratch(sm))
}

func (k GroupedMatMulTo) Stored(in []DType) (want, out []DType) {
	want, _ = GroupedMatMul(k).Stored(nil)
	return append(want, in[1+k.N:]...), in[1+k.N:]
}

func (k GroupedMatMulTo) ScratchGPU(in, out []Type, sm int) int64 {
	return GroupedMatMul(k).ScratchGPU(in, out, sm)
}

func (k MatMulSum) Stored([]DType) (want, out []DType) {
	return slices.Repeat([]DType{ComputeType}, 2*k.N), []DType{ComputeType}
}

func (k MatMulSum) ScratchGPU(in, out []Type, sm int) int64 {
	return k.one().op(in, out, 0).scratch(sm)
}

func (k MatMulSumTo) Stored(in []DType) (want, out []DType) {
	want, out = MatMulSum(k).Stored(nil)
	return append(want, out[0]), out
}

func (k MatMulSumTo) ScratchGPU(in, out []Type, sm int) int64 {
	return MatMulSum(k).ScratchGPU(in, out, sm)
}
