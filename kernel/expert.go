package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gemm"
)

// ExpertMatMul is a GEMM for each of some experts: rows of x are sorted by expert, and each expert multiplies its own
// by its own matrix.
//
//	y = Alpha x_e op(w_e)   // x f[S,K], w w[E*K,N], with TransB w[E*N,K]; starts i32[E+1] -> y f[S,N]; Alpha 0 stands for 1
//
// w holds the experts' matrices one below the other. Expert e has the rows starts[e]..starts[e+1] of x and y, which may
// be none; starts[0] is 0. Rows from starts[E] on are with no expert: their products are zero. w may be frozen in
// another float type than x's.
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
		return nil, fmt.Errorf("input 0 is %v, input 1 is %v: each of %d matrices takes rows of %d", in[0], in[1],
			k.Experts, depth)
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

func (k ExpertMatMul) Accumulate() (Kernel, bool) { return Onto[ExpertMatMul]{k}, true }

// Scratch returns, for float64, the bytes of one expert's matrix.
func (k ExpertMatMul) Scratch(in []Type, _ int) int64 {
	if in[0].DType != F64 || in[1].DType == F64 || k.Experts < 1 {
		return 0
	}
	return T(F64, in[1].Elems()/k.Experts).Bytes()
}

func (k ExpertMatMul) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (ExpertMatMul) accumulation() accumulation { return accumulation{inputs: 3, results: 1} }

func (k ExpertMatMul) bind(c *CPU, in, out []Tensor, beta float64) func() {
	rows, cols := in[1].Shape[0]/k.Experts, in[1].Shape[1]
	alpha := MatMul{Alpha: k.Alpha}.alpha()
	if in[0].DType == in[1].DType && in[0].DType == F64 {
		w := in[1].F64()
		return expertGemm(c, k.TransB, in[0], in[2], out[0], alpha, beta,
			func(e int) []float64 { return w[e*rows*cols:][:rows*cols] })
	}
	if in[0].DType == in[1].DType {
		w := in[1].F32()
		return expertGemm(c, k.TransB, in[0], in[2], out[0], alpha, beta,
			func(e int) []float32 { return w[e*rows*cols:][:rows*cols] })
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
		return expertGemmDequantised(c, k.TransB, in[0], in[2], out[0], float32(alpha), float32(beta),
			func(dst []float32, e, i int) {
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
				gemm.Gemm(pool, false, transB, m, width, depth, F(alpha), a[at*depth:], depth, w(e), ldb, F(beta),
					to[at*width:], width)
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
func expertGemmDequantised(c *CPU, transB bool, x, starts, y Tensor, alpha, beta float32,
	fill func(dst []float32, e, i int)) func() {
	w := &expertRows{fill: fill}
	return expertGemmOf(c, transB, x, starts, y, alpha, beta, func(e int) gemm.Dequantiser {
		w.e = e
		return w
	})
}

// expertGemmOf is expertGemm with the matrices w(e), each of which holds until the next is asked for.
func expertGemmOf(c *CPU, transB bool, x, starts, y Tensor, alpha, beta float32,
	w func(e int) gemm.Dequantiser) func() {
	a, s, to, pool := x.F32(), starts.I32(), y.F32(), c.Pool
	depth, width := x.Shape[1], y.Shape[1]
	return func() {
		noExpert(s, to, width, float64(beta))
		for e := range len(s) - 1 {
			if m := int(s[e+1] - s[e]); m > 0 {
				at := int(s[e])
				gemm.GemmDequantised(pool, transB, m, width, depth, alpha, a[at*depth:], depth, w(e), beta,
					to[at*width:], width)
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

func (k ExpertWeightGrad) Accumulate() (Kernel, bool) { return Onto[ExpertWeightGrad]{k}, true }

func (k ExpertWeightGrad) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (ExpertWeightGrad) accumulation() accumulation { return accumulation{inputs: 3, results: 1} }

func (k ExpertWeightGrad) bind(c *CPU, in, out []Tensor, beta float64) func() {
	return byFloat(in[0], expertWeightGrad[float32], expertWeightGrad[float64])(k, c, in, out, beta)
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

func (ExpertWeightGrad) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], in[0].Shape[1], in[1].Shape[1])
}

// ExpertWeightGradGathered is ExpertWeightGrad of rows that GatherTokens would make, read where they are: b's row r is
// the row source[r]/PerToken of x, or zero where there is none.
//
//	a f[S,N], x f[M,K], source i32[S], starts i32[E+1] -> dw f[E*N,K];  dw_e = Alpha a_eᵀ b_e; Alpha 0 stands for 1
type ExpertWeightGradGathered struct {
	Experts, PerToken int
	Alpha             float64
}

func (ExpertWeightGradGathered) Name() string { return "expert_weight_gathered" }

func (k ExpertWeightGradGathered) grad() ExpertWeightGrad {
	return ExpertWeightGrad{k.Experts, k.Alpha}
}

func (k ExpertWeightGradGathered) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,N]", "f[M,K]", "i32[S]", "i32[P]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if k.PerToken < 1 || d.At('S') != d.At('M')*k.PerToken {
		return nil, fmt.Errorf("inputs %v do not fit: %d tokens of %d slots have %d sorted rows, want one a slot", in,
			d.At('M'), k.PerToken, d.At('S'))
	}
	return k.grad().Shape([]Type{in[0], T(in[1].DType, d.At('S'), d.At('K')), in[3]})
}

func (k ExpertWeightGradGathered) Accumulate() (Kernel, bool) {
	return Onto[ExpertWeightGradGathered]{k}, true
}

// Scratch returns the bytes of the gathered rows.
func (ExpertWeightGradGathered) Scratch(in []Type, _ int) int64 {
	if len(in) < 3 || len(in[1].Shape) != 2 || len(in[2].Shape) != 1 {
		return 0
	}
	return T(in[1].DType, in[2].Shape[0], in[1].Shape[1]).Bytes()
}

func (k ExpertWeightGradGathered) CPU(c *CPU, in, out []Tensor) func() { return k.bind(c, in, out, 0) }

func (ExpertWeightGradGathered) accumulation() accumulation {
	return accumulation{inputs: 4, results: 1}
}

func (k ExpertWeightGradGathered) bind(c *CPU, in, out []Tensor, beta float64) func() {
	rows := NewTensor(T(in[1].DType, in[2].Shape[0], in[1].Shape[1]), c.Scratch)
	places := Tensor{T(I32, in[1].Shape[0], k.PerToken), nil} // which GatherTokens asks only for its shape
	gather := GatherTokens{}.CPU(c, []Tensor{in[1], places, in[2]}, []Tensor{rows})
	grad := k.grad().bind(c, []Tensor{in[0], rows, in[3]}, out, beta)
	return func() {
		gather()
		grad()
	}
}

func (ExpertWeightGradGathered) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], in[0].Shape[1], in[1].Shape[1])
}

func (k ExpertWeightGradGathered) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, I32}, []DType{F32}
}

// ScratchGPU returns zero: the device reads rows where they are.
func (ExpertWeightGradGathered) ScratchGPU(_, _ []Type, _ int) int64 { return 0 }

// ExpertBias adds each expert's bias to its rows, which are sorted by expert.
//
//	x f[S,N], b w[E*N], starts i32[E+1] -> y f[S,N];  y[r] = x[r] + b_e, starts[e] <= r < starts[e+1]; x[r] where r is with no expert
//
// The biases are frozen.
type ExpertBias struct{ Experts int }

func (ExpertBias) Name() string { return "expert_bias" }

func (o ExpertBias) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,N]", "w[B]", "i32[P]")
	if err != nil {
		return nil, err
	}
	if err := (ExpertMatMul{Experts: o.Experts}).checkStarts(in[2], d.At('P')); err != nil {
		return nil, err
	}
	if d.At('B') != o.Experts*d.At('N') {
		return nil, fmt.Errorf("input 1 is %v, want %d numbers for each of %d experts", in[1], d.At('N'), o.Experts)
	}
	return []Type{in[0]}, nil
}

func (ExpertBias) Grads() Backward { return Backward{Grads: []Ref{Upstream(), {}, {}}} }

func (ExpertBias) InPlace() []Alias { return []Alias{{0, 0}} }

func (o ExpertBias) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], expertBias[float32], expertBias[float64])(c, in, out)
}

func expertBias[F Float](c *CPU, in, out []Tensor) func() {
	x, starts, y, width := Floats[F](in[0]), in[2].I32(), Floats[F](out[0]), in[0].Shape[1]
	bias, load := frozenRow[F](in[1])
	rest := func() {
		from := int(starts[len(starts)-1]) * width
		copy(y[from:], x[from:])
	}
	return after(load, after(rest, c.Range(len(starts)-1, 1, func(lo, hi int) {
		for e := lo; e < hi; e++ {
			b := bias[e*width:][:width]
			for r := int(starts[e]); r < int(starts[e+1]); r++ {
				x, y := x[r*width:][:width], y[r*width:][:width]
				for i, v := range b {
					y[i] = x[i] + v
				}
			}
		}
	})))
}

func (ExpertBias) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

// expertShape is the sizes of a GEMM for each of some experts on a GPU, [rows,k] by [k,n], and how its operands are
// stored.
type expertShape struct {
	experts, rows, n, k int
	operand             DType
}

// hopper tells whether the wgmma kernel serves.
func (p expertShape) hopper(sm int) bool {
	return sm == 90 && p.operand != F32 && cuda.ExpertsByHopper(p.rows, p.n, p.k, p.experts)
}

// up tells whether the kernel for a small depth serves.
func (p expertShape) up() bool { return p.k <= 64 && p.k%8 == 0 && p.n > 32 && p.n%8 == 0 }

func (k ExpertMatMul) Stored(in []DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{ComputeType}
}

func (k ExpertWeightGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{F32}
}

func (k ExpertMatMulNF4) Stored([]DType) (want, out []DType) {
	want = []DType{ComputeType, I32, U8, F32}
	if k.Nested {
		want = []DType{ComputeType, I32, U8, U8, F32, F32}
	}
	return want, []DType{ComputeType}
}

func (k ExpertMatMulNF4) ScratchGPU(in, _ []Type, _ int) int64 {
	return packedExpertsScratchGPU(in[0].DType, k.Experts, k.N, k.K)
}

// packedExpertsScratchGPU returns the bytes of all experts' matrices, dequantised to the type of x.
func packedExpertsScratchGPU(x DType, experts, n, k int) int64 {
	return int64(experts) * int64(n) * int64(k) * int64(x.Size())
}

// PrologueGPU marks the dequantising of the weights, which waits for no activation.
func (ExpertMatMulNF4) PrologueGPU() bool { return true }

// slow says whether a GEMM goes by mma.sync, on a device whose fast kernel is wgmma's, for no other reason than that
// rows of its matrices are no multiple of 16 bytes. Where experts have few rows, or a matrix has at most 64 rows or
// columns, others are as fast.
func (p expertShape) slow(sm int) SlowPath {
	even := p
	even.n, even.k = (p.n+7)/8*8, (p.k+7)/8*8
	if p.up() || p.hopper(sm) || even.up() || !even.hopper(sm) {
		return SlowPath{}
	}
	return SlowPath{fmt.Sprintf("experts' GEMMs of %d columns and depth %d run on mma.sync: compute capability 9.0 has wgmma kernels for multiples of 8", p.n, p.k),
		NotMeasured, "a lora.r that is a multiple of 8 where it is one of the two, else none for this model; without training.strict the run goes by it"}
}

// slowExperts returns slow of experts' matrices [n,k], which are multiplied transposed or not.
func slowExperts(experts, n, k int, transposed bool, in []Type, sm int) SlowPath {
	if transposed {
		n, k = k, n
	}
	return expertShape{experts: experts, rows: in[0].Shape[0], n: n, k: k, operand: in[0].DType}.slow(sm)
}

func (k ExpertMatMul) SlowGPU(in, out []Type, sm int) SlowPath {
	return slowExperts(k.Experts, out[0].Shape[1], in[0].Shape[1], false, in, sm)
}

func (k ExpertMatMulNF4) SlowGPU(in, _ []Type, sm int) SlowPath {
	return slowExperts(k.Experts, k.N, k.K, k.Transposed, in, sm)
}

func (k ExpertMatMulInt8) SlowGPU(in, _ []Type, sm int) SlowPath {
	return slowExperts(k.Experts, k.N, k.K, k.Transposed, in, sm)
}

func (k ExpertMatMulMXFP4) SlowGPU(in, _ []Type, sm int) SlowPath {
	return slowExperts(k.Experts, k.N, k.K, k.Transposed, in, sm)
}

// SlowGPU returns Base's slow path, or that the update runs as a kernel of its own.
func (k ExpertUpdate) SlowGPU(in, out []Type, sm int) SlowPath {
	base, _, low := splitUpdate(k, in)
	if s, ok := k.Base.(SlowOnGPU); ok {
		if slow := s.SlowGPU(base, out, sm); slow.What != "" {
			return slow
		}
	}
	rank := low[0].Shape[1]
	p := expertShape{experts: k.Low.Experts, rows: base[0].Shape[0], n: out[0].Shape[1], k: base[0].Shape[1],
		operand: base[0].DType}
	if cuda.ExpertsTakeUpdate(rank) || p.up() || !p.hopper(sm) {
		return SlowPath{}
	}
	return SlowPath{fmt.Sprintf("experts' GEMMs take no update of rank %d along, which is a kernel of its own: the fast one takes ranks that are multiples of 8", rank),
		"479 us a GEMM in place of 380 (128 experts, 65,536 rows, rank 16, H200, docs/internals/decisions/0079-updates-taken-along.md)", "a lora.r that is a multiple of 8"}
}

func (ExpertBias) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{ComputeType}
}
