package simd

import (
	"os"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasAVX2 tells whether the inner loops of loops_amd64.s run here. Every processor with AVX2 and FMA has
// F16C. TRAINER_CPU=generic asks for plain Go, as it does of gemm.
var hasAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasFMA && os.Getenv("TRAINER_CPU") != "generic"

//go:noescape
func expAVX2(dst, src *float32, n int, shift float32) float32

//go:noescape
func maxAVX2(src *float32, n int) float32

//go:noescape
func dotAVX2(a, b *float32, n int) float32

//go:noescape
func scaleAVX2(dst, a *float32, n int, s float32)

//go:noescape
func scaleMulAVX2(dst, a *float32, n int, s float32, b *float32)

//go:noescape
func blendAVX2(dst *float32, s float32, x *float32, t float32, n int)

//go:noescape
func swigluAVX2(h, gate, up *float32, n int)

//go:noescape
func swigluGradAVX2(dgate, dup, gate, up, dh *float32, n int)

//go:noescape
func scoreGradAVX2(ds, p, dp *float32, n int, delta float32)

//go:noescape
func rotateAVX2(y0, y1, x0, x1, cos, sin *float32, n int, sign float32)

//go:noescape
func rotateEightsAVX2(y, x, cos, sin *float32, n int, sign float32)

//go:noescape
func fromBF16AVX2(dst *float32, src *uint16, n int)

//go:noescape
func fromF16AVX2(dst *float32, src *uint16, n int)

var avx2 = Loops[float32]{
	Exp: func(dst, src []float32, shift float32) float32 {
		return expAVX2(start(dst, len(src)), start(src, len(src)), len(src), shift)
	},
	Max: func(src []float32) float32 { return maxAVX2(start(src, len(src)), len(src)) },
	Dot: func(a, b []float32) float32 { return dotAVX2(start(a, len(a)), start(b, len(a)), len(a)) },
	Scale: func(dst, a []float32, s float32) {
		scaleAVX2(start(dst, len(dst)), start(a, len(dst)), len(dst), s)
	},
	ScaleMul: func(dst, a []float32, s float32, b []float32) {
		n := len(dst)
		scaleMulAVX2(start(dst, n), start(a, n), n, s, start(b, n))
	},
	Blend: func(dst []float32, s float32, x []float32, t float32) {
		n := len(dst)
		blendAVX2(start(dst, n), s, start(x, n), t, n)
	},
	SwiGLU: func(h, gate, up []float32) {
		n := len(h)
		swigluAVX2(start(h, n), start(gate, n), start(up, n), n)
	},
	SwiGLUGrad: func(dgate, dup, gate, up, dh []float32) {
		n := len(dgate)
		swigluGradAVX2(start(dgate, n), start(dup, n), start(gate, n), start(up, n), start(dh, n), n)
	},
	GeGLU:     geglu(exp32),
	GeGLUGrad: gegluGrad(exp32),
	SoftCap:   softCap[float32],
	ScoreGrad: func(ds, p, dp []float32, delta float32) {
		n := len(ds)
		scoreGradAVX2(start(ds, n), start(p, n), start(dp, n), n, delta)
	},
	Rotate: func(y0, y1, x0, x1, cos, sin []float32, sign float32) {
		n := len(y0)
		rotateAVX2(start(y0, n), start(y1, n), start(x0, n), start(x1, n), start(cos, n), start(sin, n), n, sign)
	},
	RotateEights: func(y, x, cos, sin []float32, sign float32) {
		n := len(y)
		rotateEightsAVX2(start(y, n), start(x, n), start(cos, 4), start(sin, 4), n/8, sign)
	},
	FromBF16: func(dst []float32, src []uint16) {
		n := len(dst) &^ 7
		if n > 0 {
			fromBF16AVX2(start(dst, n), start(src, n), n)
		}
		fromBF16(dst[n:], src[n:])
	},
	FromF16: func(dst []float32, src []uint16) {
		n := len(dst) &^ 7
		if n > 0 {
			fromF16AVX2(start(dst, n), start(src, n), n)
		}
		fromF16(dst[n:], src[n:])
	},
}

// start returns where n elements of s begin; it panics where s has fewer, as an index would.
func start[E any](s []E, n int) *E { return unsafe.SliceData(s[:n]) }

func vectorLoops() *Loops[float32] {
	if hasAVX2 {
		return &avx2
	}
	return nil
}
