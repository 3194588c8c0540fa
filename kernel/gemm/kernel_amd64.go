package gemm

import (
	"os"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/tierlora/tierlora/kernel/simd"
)

//go:generate go run gen.go

// tile is what an assembly tile reads; gen.go knows the offsets.
type tile struct {
	a        unsafe.Pointer
	ars, acs uintptr // bytes
	b        unsafe.Pointer
	bs       uintptr // bytes
	c        unsafe.Pointer
	ldc      uintptr // bytes
	k        int
	mask     uint64 // of the columns
	alpha    float32
	add      uint32
	alpha64  float64 // alpha of a float64 tile
}

//go:noescape
func transpose8(dst unsafe.Pointer, dstStride uintptr, src unsafe.Pointer, srcStride uintptr, blocks int)

//go:noescape
func copyRows(dst, src unsafe.Pointer, srcStride uintptr, vectors, rows int)

//go:noescape
func dot256(x, y unsafe.Pointer, n int) float32

//go:noescape
func dot4(x, y unsafe.Pointer, stride uintptr, n int, out unsafe.Pointer)

//go:noescape
func dot4BF16(x, y unsafe.Pointer, stride uintptr, n int, out unsafe.Pointer)

//go:noescape
func dot4F16(x, y unsafe.Pointer, stride uintptr, n int, out unsafe.Pointer)

//go:noescape
func sum256(acc unsafe.Pointer, vectors int, coef unsafe.Pointer, rows int, b unsafe.Pointer, stride uintptr)

func pause()

var (
	avx512 = kernel[float32]{"avx512", 12, 32, tileAVX512, dotAVX, dot16AVX, sumAVX, packRowsAVX, packColsAVX}
	avx2   = kernel[float32]{"avx2", 6, 16, tileAVX2, dotAVX, dot16AVX, sumAVX, packRowsAVX, packColsAVX}
	// avx2Double has the bits of portable64: it multiplies and adds in two roundings, each value in one chain over k.
	avx2Double = kernel[float64]{"avx2", 4, 8, tileDoubleAVX2, dotGo[float64], nil, sumGo[float64], packRows[float64],
		packCols[float64]}
)

// kernel64 returns the float64 kernel beside a float32 kernel.
func kernel64(beside *kernel[float32]) *kernel[float64] {
	if beside == &portable32 {
		return &portable64
	}
	return &avx2Double
}

// kernels lists what this processor can run, the slowest first.
var kernels = func() []*kernel[float32] {
	ks := []*kernel[float32]{&portable32}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		ks = append(ks, &avx2)
		if cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL {
			ks = append(ks, &avx512)
		}
	}
	return ks
}()

// chosen is the last kernel, or the one that TRAINER_CPU names if the processor
// can run it.
var chosen = func() *kernel[float32] {
	want := os.Getenv("TRAINER_CPU")
	for _, k := range kernels {
		if k.name == want {
			return k
		}
	}
	return kernels[len(kernels)-1]
}()

func tileAVX512(_ *space[float32], rows, cols, kc int, alpha float32, a []float32, ars, acs int, b []float32, bs int,
	c []float32, ldc int, add bool) {
	t := tile{
		a: unsafe.Pointer(&a[0]), ars: uintptr(4 * ars), acs: uintptr(4 * acs),
		b: unsafe.Pointer(&b[0]), bs: uintptr(4 * bs),
		c: unsafe.Pointer(&c[0]), ldc: uintptr(4 * ldc),
		k: kc, mask: 1<<cols - 1, alpha: alpha,
	}
	if add {
		t.add = 1
	}
	tile512(&t, rows, (cols+15)/16)
}

func tileAVX2(s *space[float32], rows, cols, kc int, alpha float32, a []float32, ars, acs int, b []float32, bs int,
	c []float32, ldc int, add bool) {
	t := tile{
		a: unsafe.Pointer(&a[0]), ars: uintptr(4 * ars), acs: uintptr(4 * acs),
		b: unsafe.Pointer(&b[0]), bs: uintptr(4 * bs),
		c: unsafe.Pointer(&c[0]), ldc: uintptr(4 * ldc),
		k: kc, alpha: alpha,
	}
	if cols%8 == 0 {
		if add {
			t.add = 1
		}
		tile256(&t, rows, cols/8)
		return
	}
	// The tile reaches over C's edge: compute it beside and move what belongs to C.
	t.c, t.ldc = unsafe.Pointer(&s.tile[0]), 4*16
	tile256(&t, rows, (cols+7)/8)
	for i := range rows {
		row := c[i*ldc:][:cols]
		for x, v := range s.tile[i*16:][:cols] {
			put(&row[x], v, add)
		}
	}
}

func tileDoubleAVX2(s *space[float64], rows, cols, kc int, alpha float64, a []float64, ars, acs int, b []float64,
	bs int, c []float64, ldc int, add bool) {
	t := tile{
		a: unsafe.Pointer(&a[0]), ars: uintptr(8 * ars), acs: uintptr(8 * acs),
		b: unsafe.Pointer(&b[0]), bs: uintptr(8 * bs),
		c: unsafe.Pointer(&c[0]), ldc: uintptr(8 * ldc),
		k: kc, alpha64: alpha,
	}
	if cols%4 == 0 {
		if add {
			t.add = 1
		}
		tileDouble(&t, rows, cols/4)
		return
	}
	// The tile reaches over C's edge: compute it beside and move what belongs to C.
	t.c, t.ldc = unsafe.Pointer(&s.tile[0]), 8*8
	tileDouble(&t, rows, (cols+3)/4)
	for i := range rows {
		row := c[i*ldc:][:cols]
		for x, v := range s.tile[i*8:][:cols] {
			put(&row[x], v, add)
		}
	}
}

func dotAVX(out, x, y []float32, stride int) {
	whole := len(x) &^ 15
	_ = y[(len(out)-1)*stride+len(x)-1]
	if len(out) < 4 || whole == 0 {
		for r := range out {
			out[r] = dot256(unsafe.Pointer(&x[0]), unsafe.Pointer(&y[r*stride]), len(x))
		}
		return
	}
	dot4(unsafe.Pointer(&x[0]), unsafe.Pointer(&y[0]), uintptr(4*stride), whole, unsafe.Pointer(&out[0]))
	for i, v := range x[whole:] {
		for r := range out {
			out[r] += float32(v * y[r*stride+whole+i])
		}
	}
}

// dot16AVX needs a row of at least 16. Every processor with AVX2 and FMA has F16C.
func dot16AVX(out, x []float32, y []uint16, stride int, f16 bool) {
	whole := len(x) &^ 15
	_, _ = y[3*stride+len(x)-1], out[3]
	kernel, number := dot4BF16, simd.FromBF16
	if f16 {
		kernel, number = dot4F16, simd.FromF16
	}
	kernel(unsafe.Pointer(&x[0]), unsafe.Pointer(&y[0]), uintptr(2*stride), whole, unsafe.Pointer(&out[0]))
	for i, v := range x[whole:] {
		for r := range out {
			out[r] += float32(v * number(y[r*stride+whole+i]))
		}
	}
}

func sumAVX(acc, coef, b []float32, stride int) {
	whole := len(acc) &^ 31
	if whole > 0 && len(coef) > 0 {
		_ = b[(len(coef)-1)*stride+whole-1]
		sum256(unsafe.Pointer(&acc[0]), whole/32, unsafe.Pointer(&coef[0]), len(coef), unsafe.Pointer(&b[0]),
			uintptr(4*stride))
	}
	if whole < len(acc) && len(coef) > 0 {
		sumGo(acc[whole:], coef, b[whole:], stride)
	}
}

func packRowsAVX(dst []float32, nr int, src []float32, stride, rows, kc int) {
	// A run of depths at a time, so that the lines being filled stay in the
	// first cache while the groups of eight rows fill their parts.
	const run = 64
	for k := 0; k < kc; k += run {
		depth := min(run, kc-k)
		whole := depth &^ 7
		for r := 0; r < nr; r += 8 {
			done := 0
			if r+8 <= rows && whole > 0 {
				_, _ = src[(r+7)*stride+k+whole-1], dst[(k+whole-1)*nr+r+7]
				transpose8(unsafe.Pointer(&dst[k*nr+r]), uintptr(4*nr), unsafe.Pointer(&src[r*stride+k]),
					uintptr(4*stride), whole/8)
				done = whole
			}
			for i := r; i < r+8; i++ {
				if i >= rows {
					for d := k; d < k+depth; d++ {
						dst[d*nr+i] = 0
					}
					continue
				}
				for d := k + done; d < k+depth; d++ {
					dst[d*nr+i] = src[i*stride+d]
				}
			}
		}
	}
}

func packColsAVX(dst []float32, nr int, src []float32, stride, cols, kc int) {
	if cols < nr {
		packCols(dst, nr, src, stride, cols, kc)
		return
	}
	_, _ = dst[kc*nr-1], src[(kc-1)*stride+nr-1]
	copyRows(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), uintptr(4*stride), nr/8, kc)
}
