package kernel

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/kernel/gemm"
)

// MatMul is the GEMM (product) of two matrices, each transposed where its attribute says so.
//
//	y = Alpha op(a) op(b)   // f[M,N]; op(a) [M,K], op(b) [K,N]; Alpha 0 stands for 1
//
// b may be a frozen weight in another float type than a's: it is then converted block by block while it is
// multiplied, and a is not transposed.
//
// A GPU stores y as ComputeType, or with FP32Out as fp32: for numbers that are compared, such as logits.
type MatMul struct {
	TransA, TransB bool
	Alpha          float64
	FP32Out        bool
	RowsApart      bool // see RowsApart
}

func (MatMul) Name() string { return "matmul" }

func (k MatMul) Shape(in []Type) ([]Type, error) {
	a, b := "f[M,K]", "w[K,N]"
	if k.TransA {
		a = "f[K,M]"
	}
	if k.TransB {
		b = "w[N,K]"
	}
	d, err := Want(in, a, b)
	if err != nil {
		return nil, err
	}
	if k.TransA && in[0].DType != in[1].DType {
		return nil, fmt.Errorf("inputs are %v and %v: with a transposed first input both must hold the same type of number", in[0], in[1])
	}
	return []Type{T(in[0].DType, d.At('M'), d.At('N'))}, nil
}

func (k MatMul) Grads() Backward {
	mul := func(transA, transB bool, a, b Ref) Call {
		return Call{Kernel: MatMul{TransA: transA, TransB: transB, Alpha: k.Alpha}, In: []Ref{a, b}}
	}
	da, db := mul(false, !k.TransB, Upstream(), In(1)), mul(!k.TransA, false, In(0), Upstream())
	if k.TransA {
		da = mul(k.TransB, true, In(1), Upstream())
	}
	if k.TransB {
		db = mul(true, k.TransA, Upstream(), In(0))
	}
	return Backward{Calls: []Call{da, db}, Grads: []Ref{FromCall(0, 0), FromCall(1, 0)}}
}

func (k MatMul) Accumulate() (Kernel, bool) { return Onto[MatMul]{k}, true }

func (k MatMul) WithFP32Out() (Kernel, bool) {
	k.FP32Out = true
	return k, true
}

func (k MatMul) WithRowsApart() Kernel {
	k.RowsApart = true
	return k
}

func (k MatMul) Scratch(in []Type, _ int) int64 { return panelBytes(in[0].DType, in[1]) }

func (k MatMul) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (MatMul) accumulation() accumulation { return accumulation{inputs: 2, results: 1, anyType: true} }

func (k MatMul) bind(c *CPU, in, out []Tensor, beta float64) func() {
	switch {
	case in[0].DType == in[1].DType && in[0].DType == F64:
		return matMul[float64](k, c, in, out, beta)
	case in[0].DType == in[1].DType:
		return matMul[float32](k, c, in, out, beta)
	}
	m, n, depth := k.sizes(in, out)
	if in[0].DType == F32 {
		a, b, y := in[0].F32(), dequantiser(in[1]), out[0].F32()
		return func() {
			gemm.GemmDequantised(c.Pool, k.TransB, m, n, depth, float32(k.alpha()), a, depth, b, float32(beta), y, n)
		}
	}
	p := newPanels(in[1].Shape, c.Scratch, converter[float64](in[1]))
	return p.gemm(c, k.TransB, k.alpha(), in[0].F64(), beta, out[0])
}

func (k MatMul) alpha() float64 {
	if k.Alpha == 0 {
		return 1
	}
	return k.Alpha
}

func (k MatMul) sizes(in, out []Tensor) (m, n, depth int) {
	depth = in[0].Shape[1]
	if k.TransA {
		depth = in[0].Shape[0]
	}
	return out[0].Shape[0], out[0].Shape[1], depth
}

func matMul[F Float](k MatMul, c *CPU, in, out []Tensor, beta float64) func() {
	a, b, y := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0])
	m, n, depth := k.sizes(in, out)
	lda, ldb := in[0].Shape[1], in[1].Shape[1]
	pool, alpha, add := c.Pool, F(k.alpha()), F(beta)
	return func() { gemm.Gemm(pool, k.TransA, k.TransB, m, n, depth, alpha, a, lda, b, ldb, add, y, n) }
}

// dequantiser returns a matrix stored in another float type than float32.
func dequantiser(t Tensor) gemm.Dequantiser {
	if t.DType == BF16 || t.DType == F16 {
		return &gemm.Halves{Bits: t.U16(), F16: t.DType == F16}
	}
	return rowConverter(converter[float32](t))
}

// rowConverter fills dst with the elements from i on; it is a gemm.Dequantiser.
type rowConverter func(dst []float32, i int)

func (d rowConverter) DequantiseRange(dst []float32, from, to int) { d(dst[:to-from], from) }

// panelRows is how many rows of a converted matrix exist at a time in float64.
const panelRows = 64

// panelBytes returns the scratch that a body in float64 needs for an operand stored in another type.
func panelBytes(body DType, b Type) int64 {
	if body != F64 || b.DType == F64 || len(b.Shape) != 2 {
		return 0
	}
	return T(F64, min(panelRows, b.Shape[0]), b.Shape[1]).Bytes()
}

// panels multiplies in float64 by a matrix [rows,cols] of which only some rows at a time are converted. It
// serves gradient checks and reference runs.
type panels struct {
	rows, cols int
	panel      []float64 // [min(panelRows,rows),cols]
	convert    func(dst []float64, i int)
}

func newPanels(shape []int, scratch []byte, convert func(dst []float64, i int)) panels {
	panel := NewTensor(T(F64, min(panelRows, shape[0]), shape[1]), scratch)
	return panels{shape[0], shape[1], panel.F64(), convert}
}

// gemm returns the work y = alpha a B + beta y, or with B transposed.
func (p panels) gemm(c *CPU, trans bool, alpha float64, a []float64, beta float64, out Tensor) func() {
	y, m, n, pool := out.F64(), out.Shape[0], out.Shape[1], c.Pool
	return func() {
		for r := 0; r < p.rows; r += panelRows {
			rows := min(panelRows, p.rows-r)
			b := p.panel[:rows*p.cols]
			p.convert(b, r*p.cols)
			if trans {
				gemm.Gemm(pool, false, true, m, rows, p.cols, alpha, a, p.cols, b, p.cols, beta, y[r:], n)
				continue
			}
			add := beta
			if r > 0 {
				add = 1
			}
			gemm.Gemm(pool, false, false, m, n, rows, alpha, a[r:], p.rows, b, p.cols, add, y, n)
		}
	}
}

func (k MatMul) Cost(in, out []Type, _ Content) Cost {
	depth := in[0].Shape[1]
	if k.TransA {
		depth = in[0].Shape[0]
	}
	return gemmCost(in, out, out[0].Shape[0], out[0].Shape[1], depth)
}

func (k MatMul) Stored([]DType) (want, out []DType) {
	want, out = []DType{ComputeType, ComputeType}, []DType{ComputeType}
	if k.FP32Out {
		out[0] = F32
	}
	return want, out
}

func (k MatMul) ScratchGPU(in, out []Type, sm int) int64 { return k.op(in, out, 0).scratch(sm) }

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

func (k MatMulSum) accumulation() accumulation { return accumulation{inputs: 2 * k.N, results: 1} }

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

func (k MatMulSum) Cost(in, out []Type, c Content) Cost {
	cost := Cost{Bytes: moved(in, out)}
	for i := range k.N {
		cost.FLOPs += k.one().Cost(in[2*i:2*i+2], out, c).FLOPs
	}
	return cost
}

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

// each returns the operands of one GEMM in MatMul's order.
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

func (k GroupedMatMul) accumulation() accumulation {
	return accumulation{inputs: 1 + k.N, results: k.N, anyType: true}
}

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

func (k GroupedMatMul) Cost(in, out []Type, c Content) Cost {
	cost := Cost{Bytes: moved(in, out)}
	for i := range k.N {
		cost.FLOPs += k.one().Cost(each(k, in[0], in[1+i]), out[i:i+1], c).FLOPs
	}
	return cost
}

func (k GroupedMatMul) Stored([]DType) (want, out []DType) {
	return slices.Repeat([]DType{ComputeType}, 1+k.N), slices.Repeat([]DType{ComputeType}, k.N)
}

func (k GroupedMatMul) ScratchGPU(in, out []Type, sm int) int64 {
	p := k.one().op(each(k, in[0], in[1]), out, 0)
	return max(p.lowRankScratch(k.N), p.scratch(sm))
}

func (k MatMulSum) Stored([]DType) (want, out []DType) {
	return slices.Repeat([]DType{ComputeType}, 2*k.N), []DType{ComputeType}
}

func (k MatMulSum) ScratchGPU(in, out []Type, sm int) int64 {
	return k.one().op(in, out, 0).scratch(sm)
}
