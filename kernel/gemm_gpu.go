//go:build gpu

package kernel

import (
	"errors"
	"slices"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// libraryTypes are cuBLASLt's types for those that GEMMs read and write.
var libraryTypes = map[DType]gpu.DType{BF16: gpu.BF16, F16: gpu.F16, F32: gpu.F32}

// bind queues the GEMM into d, with scratch of at least p.scratch() bytes.
func (p gemmOp) bind(g *GPU, d, a, b, scratch gpu.Ptr) (func() error, error) {
	if p.skinny() {
		at := cuda.SkinnyAny(p.n)
		if p.operand != F32 && cuda.FitsSkinny(p.m, p.k, false) && (a|b)%16 == 0 {
			if cuda.SkinnyTiled(p.m) {
				return skinnyTile{M: p.m, K: p.k, N: []int{p.n}, alpha: p.alpha, beta: p.beta, out: p.out}.bind(g,
					[]gpu.Ptr{d}, a, nil, [][]any{{b}})
			}
			at = cuda.Skinny("skinny", p.m, p.n)
		}
		return g.Launch(at, d, a, b, int32(p.m), int32(p.n), int32(p.k), p.alpha, p.beta, isFP32(p.out))
	}
	if l, _ := p.lowRank(1); g.BLAS == nil || l.Small() {
		work, ok, err := p.bindLowRank(g, []gpu.Ptr{d}, []gpu.Ptr{a}, []gpu.Ptr{b}, scratch)
		if ok || err != nil {
			return work, err
		}
	}
	lda, ldb := p.rows()
	if g.BLAS != nil {
		x := gpu.Gemm{M: p.m, N: p.n, K: p.k, TransA: p.transA, TransB: p.transB, In: libraryTypes[p.operand],
			Out:  libraryTypes[p.out],
			TF32: g.Precision == PrecisionTF32, Alpha: p.alpha, Beta: p.beta,
			Align: rowAlign(p.operand.Size()*lda, p.operand.Size()*ldb, p.out.Size()*p.n)}
		plan, err := g.planGemm(x)
		if err != nil {
			return nil, err
		}
		s := g.Stream
		return func() error { return plan.Run(s, d, a, b, scratch) }, nil
	}
	l, ok := p.layout()
	if !ok {
		return nil, errors.New("GEMM of two transposed matrices: cuBLASLt is needed for it")
	}
	parts := p.parts(g.Device.SM())
	if parts == 1 {
		return p.native(g, l, 1, d, a, b)
	}
	part := p
	part.beta, part.out = 0, F32
	mul, err := part.native(g, l, parts, scratch, a, b)
	if err != nil {
		return nil, err
	}
	entry := "reduce_splits_narrow"
	if p.out == F32 {
		entry = "reduce_splits"
	}
	n := int64(p.m) * int64(p.n)
	sum, err := g.Launch(cuda.Flat("reduce", entry, n), d, scratch, int32(parts), n, float32(1), p.beta)
	if err != nil {
		return nil, err
	}
	return inOrder(mul, sum), nil
}

// skinnyTile is a launch of the skinny_tile_* kernels: D_i [M,N_i] = alpha X W_i^T + beta D_i, or, gated, SwiGLU of
// two.
type skinnyTile struct {
	store       string // of the weights: "", "_nf4" or "_nf4_nested"
	M, K        int
	N           []int
	gated       bool
	alpha, beta float32
	out         DType
}

// bind queues the launch. tables are the weights' common arguments, and weights those of each.
func (t skinnyTile) bind(g *GPU, d []gpu.Ptr, x gpu.Ptr, tables []any, weights [][]any) (func() error, error) {
	var args, sizes []any
	for i := range 3 {
		args = append(args, d[min(i, len(d)-1)])
		n := 0
		if i < len(t.N) {
			n = t.N[i]
		}
		sizes = append(sizes, int32(n))
	}
	args = append(append(args, x), tables...)
	for i := range 3 {
		args = append(args, weights[min(i, len(weights)-1)]...)
	}
	args = append(append(append(args, int32(t.M)), sizes...), int32(t.K), t.alpha, t.beta, isFP32(t.out))
	gated := int32(0)
	if t.gated {
		gated = 1
	}
	return g.Launch(cuda.SkinnyTile(t.store, t.M, t.N, t.gated, g.Device.SM()), append(args, gated)...)
}

// native binds one of our kernels: for 16 bits wgmma where it can run and the operands' addresses allow it, else
// mma.sync; for fp32, TF32 included, one without tensor cores.
func (p gemmOp) native(g *GPU, l cuda.GemmLayout, parts int, d, a, b gpu.Ptr) (func() error, error) {
	lda, ldb := p.rows()
	if p.operand == F32 {
		return g.Launch(cuda.GemmSingle(l, p.m, p.n, parts), d, a, b, int32(p.m), int32(p.n), int32(p.k), int32(lda),
			int32(ldb), int32(p.n), p.alpha, p.beta)
	}
	f32 := isFP32(p.out)
	if !p.hopper(g.Device.SM()) || (a|b)%16 != 0 {
		return g.Launch(cuda.Gemm(l, p.m, p.n, p.k, parts), d, a, b, int32(p.m), int32(p.n), int32(p.k), int32(lda),
			int32(ldb), int32(p.n), p.alpha, p.beta, f32)
	}
	at, boxA, boxB := cuda.GemmHopper(l, p.m, p.n, p.k, parts)
	rowsA, rowsB := p.m, p.k // as stored
	if p.transA {
		rowsA = p.k
	}
	if p.transB {
		rowsB = p.n
	}
	mapA, err := gpu.NewTensorMap(a, []int64{int64(lda), int64(rowsA)}, []int64{int64(2 * lda)}, boxA[:], 128)
	if err != nil {
		return nil, err
	}
	mapB, err := gpu.NewTensorMap(b, []int64{int64(ldb), int64(rowsB)}, []int64{int64(2 * ldb)}, boxB[:], 128)
	if err != nil {
		return nil, err
	}
	return g.Launch(at, d, mapA, mapB, int32(p.m), int32(p.n), int32(p.k), int32(p.n), p.alpha, p.beta, f32)
}

// isFP32 returns how a kernel is told the type of its result.
func isFP32(d DType) int32 {
	if d == F32 {
		return 1
	}
	return 0
}

// rowAlign returns the largest power of two up to 16 that divides all row sizes in bytes.
func rowAlign(rows ...int) int {
	align := 16
	for _, r := range rows {
		for r%align != 0 {
			align /= 2
		}
	}
	return align
}

// bindLowRank queues GEMMs that share what is wide: d, a and b are the operands as a GEMM has them, the
// shared one alone. ok is false where no kernel serves or an address is no multiple of 16 bytes.
func (p gemmOp) bindLowRank(g *GPU, d, a, b []gpu.Ptr, scratch gpu.Ptr) (work func() error, ok bool, err error) {
	l, form := p.lowRank(max(len(d), len(a), len(b)))
	all := gpu.Ptr(0)
	for _, list := range [][]gpu.Ptr{d, a, b} {
		for _, x := range list {
			all |= x
		}
	}
	wide := map[lowRankForm][]gpu.Ptr{lowRankDown: a, lowRankUp: d, lowRankGrad: b, lowRankGradFlipped: a}[form]
	// In a model that is no wider than a rank, what GEMMs share may be their narrow operand: then there are several
	// wide ones.
	if len(wide) != 1 || all%16 != 0 || g.Precision.Stored(ComputeType) == F32 {
		return nil, false, nil
	}
	layout, _ := p.layout()
	sizes := []any{int32(l.M), int32(l.C), int32(l.R)}
	switch form {
	case lowRankDown:
		work, err = g.Launch(l.Down(layout), slices.Concat(four(d), []any{wide[0]}, four(b), []any{int32(l.Count)},
			sizes, []any{p.alpha})...)
	case lowRankUp:
		at, tiles := l.Up(layout)
		work, err = g.Launch(at, slices.Concat([]any{wide[0]}, four(a), four(b), sizes,
			[]any{int32(tiles), p.alpha, p.beta})...)
	default:
		narrow, flip := a, int32(0)
		if form == lowRankGradFlipped {
			narrow, flip = b, 1
		}
		at, shares := l.Grad()
		counters := gpu.Ptr(0)
		if shares > 0 {
			counters = g.counters()
		}
		work, err = g.Launch(at, slices.Concat(four(d), []any{wide[0]}, four(narrow), []any{int32(l.Count)}, sizes,
			[]any{flip, p.alpha, p.beta, scratch, counters})...)
	}
	return work, true, err
}

// four returns addresses as lowrank.cu takes them.
func four(p []gpu.Ptr) []any {
	args := make([]any, 4)
	for i := range args {
		args[i] = gpu.Ptr(0)
		if i < len(p) {
			args[i] = p[i]
		}
	}
	return args
}
