package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/gemm"
)

// ExpertMatMul is a GEMM for each of some experts: rows of x are sorted by expert, and each expert multiplies its own by its own
// matrix.
//
//	y = Alpha x_e op(w_e)   // x f[S,K], w w[E*K,N], with TransB w[E*N,K]; starts i32[E+1] -> y f[S,N]; Alpha 0 stands for 1
//
// w holds the experts' matrices one below the other. Expert e has the rows starts[e]..starts[e+1] of x and y, which may be none;
// starts[0] is 0. Rows from starts[E] on are with no expert: their products are zero. w may be frozen in another float type than x's.
type ExpertMatMul struct {
	Experts int
	TransB  bool
	Alpha   float64
}

func (ExpertMatMul) Name() string { return "expert_matmul" }

func (k ExpertMatMul) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,K]", "w[A,B]", "i32[P]")
	if err != nil {
		return nil, err
	}
	if err := k.checkStarts(in[2], d.At('P')); err != nil {
		return nil, err
	}
	rows, cols := d.At('A')/k.Experts, d.At('B')
	if d.At('A')%k.Experts != 0 {
		return nil, fmt.Errorf("input 1 is %v: its rows are not those of %d equal matrices", in[1], k.Experts)
	}
	depth, width := rows, cols
	if k.TransB {
		depth, width = cols, rows
	}
	if depth != d.At('K') {
		return nil, fmt.Errorf("input 0 is %v, input 1 is %v: each of %d matrices takes rows of %d", in[0], in[1], k.Experts, depth)
	}
	return []Type{T(in[0].DType, d.At('S'), width)}, nil
}

func (k ExpertMatMul) checkStarts(starts Type, n int) error {
	if k.Experts < 1 || k.Experts > MaxExperts {
		return fmt.Errorf("attribute Experts is %d, want 1 to %d", k.Experts, MaxExperts)
	}
	if n != k.Experts+1 {
		return fmt.Errorf("the experts' first rows are %v, want one more than the %d experts", starts, k.Experts)
	}
	return nil
}

func (k ExpertMatMul) Grads() Backward {
	dx := k
	dx.TransB = !k.TransB
	dw := Call{ExpertWeightGrad{k.Experts, k.Alpha}, []Ref{In(0), Upstream(), In(2)}}
	if k.TransB {
		dw.In = []Ref{Upstream(), In(0), In(2)}
	}
	return Backward{
		Calls: []Call{{dx, []Ref{Upstream(), In(1), In(2)}}, dw},
		Grads: []Ref{FromCall(0, 0), FromCall(1, 0), {}},
	}
}

func (k ExpertMatMul) Accumulate() (Kernel, bool) { return ExpertMatMulTo(k), true }

// Scratch of float64 is one expert's matrix.
func (k ExpertMatMul) Scratch(in []Type, _ int) int64 {
	if in[0].DType != F64 || in[1].DType == F64 || k.Experts < 1 {
		return 0
	}
	return T(F64, in[1].Elems()/k.Experts).Bytes()
}

func (k ExpertMatMul) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

// ExpertMatMulTo adds ExpertMatMul's result for its first three inputs to the fourth, in the fourth one's memory.
type ExpertMatMulTo ExpertMatMul

func (ExpertMatMulTo) Name() string { return "expert_matmul" }

func (k ExpertMatMulTo) Shape(in []Type) ([]Type, error) { return onto(ExpertMatMul(k), in, 3) }

func (ExpertMatMulTo) Overwrites() []Alias { return []Alias{{0, 3}} }

func (k ExpertMatMulTo) Scratch(in []Type, workers int) int64 {
	return ExpertMatMul(k).Scratch(in, workers)
}

func (k ExpertMatMulTo) CPU(c *CPU, in, out []Tensor) func() {
	return ExpertMatMul(k).bind(c, in, out, 1)
}

func (k ExpertMatMul) bind(c *CPU, in, out []Tensor, beta float64) func() {
	rows, cols := in[1].Shape[0]/k.Experts, in[1].Shape[1]
	alpha := MatMul{Alpha: k.Alpha}.alpha()
	if in[0].DType == in[1].DType && in[0].DType == F64 {
		w := in[1].F64()
		return expertGemm(c, k.TransB, in[0], in[2], out[0], alpha, beta, func(e int) []float64 { return w[e*rows*cols:][:rows*cols] })
	}
	if in[0].DType == in[1].DType {
		w := in[1].F32()
		return expertGemm(c, k.TransB, in[0], in[2], out[0], alpha, beta, func(e int) []float32 { return w[e*rows*cols:][:rows*cols] })
	}
	if in[0].DType == F64 {
		one, fill := NewTensor(T(F64, rows*cols), c.Scratch).F64(), converter[float64](in[1])
		return expertGemm(c, k.TransB, in[0], in[2], out[0], alpha, beta, func(e int) []float64 {
			fill(one, e*rows*cols)
			return one
		})
	}
	if in[1].DType == F64 {
		fill := converter[float32](in[1])
		return expertGemmDequantised(c, k.TransB, in[0], in[2], out[0], float32(alpha), float32(beta), func(dst []float32, e, i int) {
			fill(dst, e*rows*cols+i)
		})
	}
	all, w := in[1].U16(), &gemm.Halves{F16: in[1].DType == F16}
	return expertGemmOf(c, k.TransB, in[0], in[2], out[0], float32(alpha), float32(beta), func(e int) gemm.Dequantiser {
		w.Bits = all[e*rows*cols:][:rows*cols]
		return w
	})
}

// expertGemm is y_e = alpha x_e w(e) + beta y_e, or w(e) transposed, expert by expert.
func expertGemm[F Float](c *CPU, transB bool, x, starts, y Tensor, alpha, beta float64, w func(e int) []F) func() {
	a, s, to, pool := Floats[F](x), starts.I32(), Floats[F](y), c.Pool
	depth, width := x.Shape[1], y.Shape[1]
	ldb := width
	if transB {
		ldb = depth
	}
	return func() {
		noExpert(s, to, width, beta)
		for e := range len(s) - 1 {
			if m := int(s[e+1] - s[e]); m > 0 {
				at := int(s[e])
				gemm.Gemm(pool, false, transB, m, width, depth, F(alpha), a[at*depth:], depth, w(e), ldb, F(beta), to[at*width:], width)
			}
		}
	}
}

// noExpert makes the products of the rows behind those of the last expert.
func noExpert[F Float](starts []int32, y []F, width int, beta float64) {
	if beta == 0 {
		clear(y[int(starts[len(starts)-1])*width:])
	}
}

// expertRows gives the numbers of one expert's matrix; it is a gemm.Dequantiser.
type expertRows struct {
	e    int
	fill func(dst []float32, e, i int)
}

func (r *expertRows) DequantiseRange(dst []float32, from, to int) { r.fill(dst[:to-from], r.e, from) }

// expertGemmDequantised is expertGemm with matrices that are made float32 block by block while they are multiplied.
func expertGemmDequantised(c *CPU, transB bool, x, starts, y Tensor, alpha, beta float32, fill func(dst []float32, e, i int)) func() {
	w := &expertRows{fill: fill}
	return expertGemmOf(c, transB, x, starts, y, alpha, beta, func(e int) gemm.Dequantiser {
		w.e = e
		return w
	})
}

// expertGemmOf is expertGemm with the matrices w(e), each of which holds until the next is asked for.
func expertGemmOf(c *CPU, transB bool, x, starts, y Tensor, alpha, beta float32, w func(e int) gemm.Dequantiser) func() {
	a, s, to, pool := x.F32(), starts.I32(), y.F32(), c.Pool
	depth, width := x.Shape[1], y.Shape[1]
	return func() {
		noExpert(s, to, width, float64(beta))
		for e := range len(s) - 1 {
			if m := int(s[e+1] - s[e]); m > 0 {
				at := int(s[e])
				gemm.GemmDequantised(pool, transB, m, width, depth, alpha, a[at*depth:], depth, w(e), beta, to[at*width:], width)
			}
		}
	}
}

// ExpertWeightGrad is the gradient of ExpertMatMul for its matrices; that of an expert without rows is zero.
//
//	a f[S,N], b f[S,K], starts i32[E+1] -> dw f[E*N,K];  dw_e = Alpha a_eᵀ b_e; Alpha 0 stands for 1
type ExpertWeightGrad struct {
	Experts int
	Alpha   float64
}

func (ExpertWeightGrad) Name() string { return "expert_weight_grad" }

func (k ExpertWeightGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,N]", "f[S,K]", "i32[P]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if err := (ExpertMatMul{Experts: k.Experts}).checkStarts(in[2], d.At('P')); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, k.Experts*d.At('N'), d.At('K'))}, nil
}

func (k ExpertWeightGrad) Accumulate() (Kernel, bool) { return ExpertWeightGradTo(k), true }

func (k ExpertWeightGrad) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (k ExpertWeightGrad) bind(c *CPU, in, out []Tensor, beta float64) func() {
	return byFloat(in[0], expertWeightGrad[float32], expertWeightGrad[float64])(k, c, in, out, beta)
}

// ExpertWeightGradTo adds ExpertWeightGrad's result for its first three inputs to the fourth, in the fourth one's memory.
type ExpertWeightGradTo ExpertWeightGrad

func (ExpertWeightGradTo) Name() string { return "expert_weight_grad" }

func (k ExpertWeightGradTo) Shape(in []Type) ([]Type, error) { return onto(ExpertWeightGrad(k), in, 3) }

func (ExpertWeightGradTo) Overwrites() []Alias { return []Alias{{0, 3}} }

func (k ExpertWeightGradTo) CPU(c *CPU, in, out []Tensor) func() {
	return ExpertWeightGrad(k).bind(c, in, out, 1)
}

func expertWeightGrad[F Float](k ExpertWeightGrad, c *CPU, in, out []Tensor, beta float64) func() {
	a, b, s, dw, pool := Floats[F](in[0]), Floats[F](in[1]), in[2].I32(), Floats[F](out[0]), c.Pool
	n, width, alpha := in[0].Shape[1], in[1].Shape[1], F(MatMul{Alpha: k.Alpha}.alpha())
	return func() {
		for e := range k.Experts {
			to, at, m := dw[e*n*width:][:n*width], int(s[e]), int(s[e+1]-s[e])
			if m > 0 {
				gemm.Gemm(pool, true, false, n, width, m, alpha, a[at*n:], n, b[at*width:], width, F(beta), to, width)
			} else if beta == 0 {
				clear(to)
			}
		}
	}
}

func (ExpertMatMul) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

func (ExpertMatMulTo) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1])
}

func (ExpertWeightGrad) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], in[0].Shape[1], in[1].Shape[1])
}

func (ExpertWeightGradTo) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], in[0].Shape[1], in[1].Shape[1])
}
