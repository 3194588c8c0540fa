package kernel

import "fmt"

// MatMulSum is a sum of N GEMMs, for plans of a GPU, which writes it once.
//
//	y = Alpha (a_1 op(b_1) + ... + a_N op(b_N))   // f[M,C]; a_i f[M,R], b_i w[R,C], or w[C,R] with TransB; inputs a_1 b_1 a_2 b_2 ...
type MatMulSum struct {
	N      int
	TransB bool
	Alpha  float64
}

func (MatMulSum) Name() string { return "matmul" }

func (k MatMulSum) one() MatMul { return MatMul{TransB: k.TransB, Alpha: k.Alpha} }

func (k MatMulSum) Shape(in []Type) ([]Type, error) {
	if k.N < 1 || len(in) != 2*k.N {
		return nil, fmt.Errorf("takes %d pairs of operands, got %d inputs", k.N, len(in))
	}
	var sum []Type
	for i := range k.N {
		y, err := k.one().Shape(in[2*i : 2*i+2])
		if err == nil && i > 0 && !y[0].Equal(sum[0]) {
			err = fmt.Errorf("it is %v, the first is %v", y[0], sum[0])
		}
		if err != nil {
			return nil, fmt.Errorf("GEMM %d: %w", i, err)
		}
		sum = y
	}
	return sum, nil
}

func (k MatMulSum) Scratch(in []Type, workers int) int64 {
	var n int64
	for i := range k.N {
		n = max(n, k.one().Scratch(in[2*i:2*i+2], workers))
	}
	return n
}

func (k MatMulSum) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (k MatMulSum) bind(c *CPU, in, out []Tensor, beta float64) func() {
	work := make([]func(), k.N)
	for i := range work {
		if i > 0 {
			beta = 1
		}
		work[i] = k.one().bind(c, in[2*i:2*i+2], out, beta)
	}
	return allOf(work)
}

// MatMulSumTo adds MatMulSum's result to its last input, in that one's memory.
type MatMulSumTo MatMulSum

func (MatMulSumTo) Name() string { return "matmul" }

func (k MatMulSumTo) Shape(in []Type) ([]Type, error) { return onto(MatMulSum(k), in, 2*k.N) }

func (k MatMulSumTo) Overwrites() []Alias { return []Alias{{0, 2 * k.N}} }

func (k MatMulSumTo) Scratch(in []Type, workers int) int64 { return MatMulSum(k).Scratch(in, workers) }

func (k MatMulSumTo) CPU(c *CPU, in, out []Tensor) func() { return MatMulSum(k).bind(c, in, out, 1) }

func (k MatMulSum) Cost(in, out []Type, c Content) Cost {
	cost := Cost{Bytes: moved(in, out)}
	for i := range k.N {
		cost.FLOPs += k.one().Cost(in[2*i:2*i+2], out, c).FLOPs
	}
	return cost
}

func (k MatMulSumTo) Cost(in, out []Type, c Content) Cost { return MatMulSum(k).Cost(in, out, c) }
