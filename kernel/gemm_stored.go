package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// blasWorkspace is the scratch memory that cuBLASLt may use, in bytes.
const blasWorkspace = 8 << 20

// skinny tells whether a GEMM of few rows runs on skinny.cu, or on skinny_any.cu, which take each row apart.
func (p gemmOp) skinny() bool {
	return p.rowsApart && !p.transA && p.transB && p.m <= cuda.SkinnyRows
}

// scratch is the working memory of a GEMM by whichever kernel runs it, in bytes. sm is the device's compute capability.
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

// rows are the sizes of the rows of A and B as stored.
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

// lowRankScratch is the working memory of n such GEMMs in one launch, in bytes.
func (p gemmOp) lowRankScratch(n int) int64 {
	l, form := p.lowRank(n)
	if form != lowRankGrad && form != lowRankGradFlipped {
		return 0
	}
	_, bytes := l.Grad()
	return bytes
}
