// Package gemm is the matrix multiplication of the CPU kernels: blocked, packed,
// on all cores, with AVX2 and AVX-512 assembly for float32, AVX2 assembly for
// float64, and plain Go for every other processor. A float64 result has the
// same bits on every processor.
//
// Every value of the result is a sum over k in blocks of a size that depends
// on k alone, each block in ascending order. So a result does not depend on
// the number of threads, nor on how the work is cut into tiles. GEMMs of few
// rows sum in another order (skinny.go), which depends on the shape alone too.
//
// TRAINER_CPU=generic, avx2 or avx512 in the environment asks for one path;
// without it, or where the processor lacks it, the fastest is taken (Path).
package gemm

import (
	"fmt"
	"unsafe"

	"github.com/tierlora/tierlora/kernel/simd"
)

// Float is an element type.
type Float interface{ ~float32 | ~float64 }

// Dequantiser is a matrix that is stored packed, row-major: quant.Packed is one.
// DequantiseRange writes the elements [from,to) of the flattened matrix to
// dst; it is called from several goroutines.
type Dequantiser interface {
	DequantiseRange(dst []float32, from, to int)
}

// Halves is a matrix stored as 16-bit floats, row-major: bf16, or IEEE binary16 where F16 is set. GEMMs of few rows by
// its transpose convert as they multiply, so that they read half the memory that float32 takes.
type Halves struct {
	Bits []uint16
	F16  bool
}

// DequantiseRange is the Dequantiser's.
func (h *Halves) DequantiseRange(dst []float32, from, to int) {
	if h.F16 {
		loops.FromF16(dst[:to-from], h.Bits[from:to])
		return
	}
	loops.FromBF16(dst[:to-from], h.Bits[from:to])
}

var loops = simd.Best[float32]()

// Path returns the name of the float32 kernels in use: generic, avx2 or avx512.
func Path() string { return chosen.name }

// Gemm computes C = alpha op(A) op(B) + beta C on the workers of p (nil: the
// shared pool). op(A) is [m,k], op(B) [k,n], C [m,n], all row-major with the
// row strides lda, ldb, ldc; op transposes where transA or transB is set, so
// a transposed A is stored as [k,m] and a transposed B as [n,k].
// With beta 0, C is not read; with alpha 0, A and B are not. It panics on a slice that is too short.
func Gemm[T Float](p *Pool, transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T,
	ldc int) {
	run(p, problem[T]{transA: transA, transB: transB, m: m, n: n, k: k, alpha: alpha, a: a, lda: lda, b: b, ldb: ldb,
		beta: beta, c: c, ldc: ldc})
}

// GemmByTiles is Gemm without the other order of sums that GEMMs of few rows have: a row of C has the same bits
// whatever rows are computed beside it.
func GemmByTiles[T Float](p *Pool, transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T,
	c []T, ldc int) {
	run(p, problem[T]{transA: transA, transB: transB, m: m, n: n, k: k, alpha: alpha, a: a, lda: lda, b: b, ldb: ldb,
		beta: beta, c: c, ldc: ldc, tiles: true})
}

// GemmDequantised is Gemm with op(A) = A and a B that is dequantised block by block
// while it is multiplied, so that it never exists as a whole: the same result
// bit for bit as dequantising it first. B is [k,n], or [n,k] when transB is set.
// Y = X Wᵀ takes transB true, dX = dY W false.
func GemmDequantised(p *Pool, transB bool, m, n, k int, alpha float32, a []float32, lda int, b Dequantiser,
	beta float32, c []float32, ldc int) {
	ldb := n
	if transB {
		ldb = k
	}
	run(p, problem[float32]{transB: transB, m: m, n: n, k: k, alpha: alpha, a: a, lda: lda, dec: b, ldb: ldb,
		beta: beta, c: c, ldc: ldc})
}

// problem is one GEMM.
type problem[T Float] struct {
	transA, transB bool
	m, n, k        int
	alpha, beta    T
	a, b, c        []T
	lda, ldb, ldc  int
	dec            Dequantiser // instead of b
	tiles          bool        // never by dot products or rows of B
}

func run[T Float](p *Pool, q problem[T]) {
	q.check()
	if q.m == 0 || q.n == 0 {
		return
	}
	if p == nil {
		p = Shared()
	}
	if unsafe.Sizeof(q.alpha) == 4 {
		// T may be a named float32: the slices are the same memory.
		runOn(p, &p.job32, problem[float32]{
			transA: q.transA, transB: q.transB, m: q.m, n: q.n, k: q.k, alpha: float32(q.alpha), beta: float32(q.beta),
			a: as[float32](q.a), b: as[float32](q.b), c: as[float32](q.c), lda: q.lda, ldb: q.ldb, ldc: q.ldc,
			dec: q.dec, tiles: q.tiles,
		})
		return
	}
	runOn(p, &p.job64, problem[float64]{
		transA: q.transA, transB: q.transB, m: q.m, n: q.n, k: q.k, alpha: float64(q.alpha), beta: float64(q.beta),
		a: as[float64](q.a), b: as[float64](q.b), c: as[float64](q.c), lda: q.lda, ldb: q.ldb, ldc: q.ldc,
		tiles: q.tiles,
	})
}

func as[To, From Float](x []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func runOn[T Float](p *Pool, j *job[T], q problem[T]) {
	p.mu.Lock()
	j.problem = q
	j.plan(p.Workers())
	p.f, p.g = nil, j.do
	p.serve(j.tasks)
}

func (q *problem[T]) check() {
	if q.m < 0 || q.n < 0 || q.k < 0 {
		panic(fmt.Sprintf("gemm: sizes m=%d n=%d k=%d", q.m, q.n, q.k))
	}
	need := func(name string, x []T, trans bool, rows, cols, stride int) {
		if trans {
			rows, cols = cols, rows
		}
		if rows == 0 || cols == 0 {
			return
		}
		if stride < cols || len(x) < (rows-1)*stride+cols {
			panic(fmt.Sprintf("gemm: %s holds %d values with rows of %d; a matrix [%d,%d] does not fit", name, len(x),
				stride, rows, cols))
		}
	}
	need("A", q.a, q.transA, q.m, q.k, q.lda)
	if q.dec == nil {
		need("B", q.b, q.transB, q.k, q.n, q.ldb)
	}
	need("C", q.c, false, q.m, q.n, q.ldc)
}
