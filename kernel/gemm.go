package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
)

// gemmOp is D = alpha op(A) op(B) + beta D, of matrices whose rows follow one another.
type gemmOp struct {
	m, n, k        int
	transA, transB bool
	alpha, beta    float32
	operand, out   DType // of A and B, as stored; of D: operand or F32
	rowsApart      bool
}

func (k MatMul) op(in, out []Type, beta float32) gemmOp {
	depth := in[0].Shape[1]
	if k.TransA {
		depth = in[0].Shape[0]
	}
	return gemmOp{m: out[0].Shape[0], n: out[0].Shape[1], k: depth, transA: k.TransA, transB: k.TransB,
		alpha: float32(k.alpha()), beta: beta, operand: in[0].DType, out: out[0].DType, rowsApart: k.RowsApart}
}

// lowRankForm is which of lowrank.cu's three kernels a GEMM runs on.
type lowRankForm uint8

const (
	noLowRank lowRankForm = iota
	lowRankDown
	lowRankUp
	lowRankGrad
	lowRankGradFlipped // the wide operand is the first
)

// lowRank tells how n GEMMs like p that share their wide operand run on lowrank.cu, by shapes and types alone.
func (p gemmOp) lowRank(n int) (cuda.LowRank, lowRankForm) {
	const width = cuda.LowRankWidth
	l, form := cuda.LowRank{Count: n}, noLowRank
	switch {
	case p.transA && !p.transB && p.out == F32 && p.m <= width && p.m < p.n:
		l.M, l.C, l.R, form = p.k, p.n, p.m, lowRankGrad
	case p.transA && !p.transB && p.out == F32 && p.n <= width:
		l.M, l.C, l.R, form = p.k, p.m, p.n, lowRankGradFlipped
	case p.transA || p.out == F32:
	case p.k <= width && p.k < p.n:
		l.M, l.C, l.R, form = p.m, p.n, p.k, lowRankUp
	case p.n <= width && p.beta == 0:
		l.M, l.C, l.R, form = p.m, p.k, p.n, lowRankDown
	}
	if form == noLowRank || !l.Fits() {
		return l, noLowRank
	}
	return l, form
}

// FitsGroupedMatMul tells whether a GPU runs n GEMMs k, of operands in and with the result out, in one launch when they
// share their wide operand, or their result.
func FitsGroupedMatMul(k MatMul, in []Type, out Type, n int) bool {
	if k.RowsApart {
		return false
	}
	var beta float32
	if out.DType = ComputeType; k.TransA {
		out.DType, beta = F32, 1
	}
	_, form := k.op(in, []Type{out}, beta).lowRank(n)
	return form != noLowRank && !k.FP32Out
}

// blasWorkspace is the scratch memory that cuBLASLt may use, in bytes.
const blasWorkspace = 8 << 20

// skinny tells whether a GEMM of few rows runs on skinny.cu, or on skinny_any.cu, which take each row apart.
func (p gemmOp) skinny() bool {
	return p.rowsApart && !p.transA && p.transB && p.m <= cuda.SkinnyRows
}

// scratch returns the working memory of a GEMM by whichever kernel runs it, in bytes. sm is the device's compute
// capability.
func (p gemmOp) scratch(sm int) int64 {
	if p.skinny() {
		return 0
	}
	n := max(blasWorkspace, p.lowRankScratch(1))
	if parts := p.parts(sm); parts > 1 {
		n = max(n, int64(parts)*int64(p.m)*int64(p.n)*4)
	}
	return n
}

func (p gemmOp) layout() (cuda.GemmLayout, bool) {
	switch {
	case !p.transA && !p.transB:
		return cuda.NN, true
	case !p.transA && p.transB:
		return cuda.NT, true
	case p.transA && !p.transB:
		return cuda.TN, true
	}
	return "", false
}

// rows returns the sizes of the rows of A and B as stored.
func (p gemmOp) rows() (lda, ldb int) {
	lda, ldb = p.k, p.n
	if p.transA {
		lda = p.m
	}
	if p.transB {
		ldb = p.k
	}
	return lda, ldb
}

// hopper tells whether our native GEMM runs on the wgmma kernel: compute capability 9.0, a result wide enough to
// fill a tile, rows of 16 bytes.
func (p gemmOp) hopper(sm int) bool {
	lda, ldb := p.rows()
	return sm == 90 && p.operand != F32 && p.n > 32 && lda%8 == 0 && ldb%8 == 0
}

func (p gemmOp) parts(sm int) int {
	l, ok := p.layout()
	switch {
	case !ok:
		return 1
	case p.operand == F32:
		return cuda.GemmSingleParts(l, p.m, p.n, p.k)
	case p.hopper(sm):
		return cuda.GemmHopperParts(l, p.m, p.n, p.k)
	}
	return cuda.GemmParts(l, p.m, p.n, p.k)
}

// lowRankScratch returns the working memory of n such GEMMs in one launch, in bytes.
func (p gemmOp) lowRankScratch(n int) int64 {
	l, form := p.lowRank(n)
	if form != lowRankGrad && form != lowRankGradFlipped {
		return 0
	}
	_, bytes := l.Grad()
	return bytes
}
