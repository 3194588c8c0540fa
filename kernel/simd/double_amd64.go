package simd

import "math"

// expDoubleAVX2 computes dst = e^(src-shift) for blocks of eight elements from the first on, adds them to sums, and
// returns the number of elements that it wrote. It stops at a block with a value outside [-708, 709].
//
//go:noescape
func expDoubleAVX2(dst, src *float64, n int, shift float64, sums *[8]float64) int

//go:noescape
func scoreGradDoubleAVX2(ds, p, dp *float64, n int, delta float64)

//go:noescape
func blendDoubleAVX2(dst *float64, s float64, x *float64, t float64, n int)

// doubleLoops returns the inner loops for float64: those in Go, with the vector forms of attention's loops in their
// place. Every bit of a result is that of the loop in Go.
func doubleLoops() *Loops[float64] {
	l := plain(math.Exp)
	if !hasAVX2 {
		return l
	}
	l.Exp = expDouble
	scoreGrad, blend := l.ScoreGrad, l.Blend
	l.ScoreGrad = func(ds, p, dp []float64, delta float64) {
		n := len(ds) &^ 3
		if n > 0 {
			scoreGradDoubleAVX2(start(ds, n), start(p, n), start(dp, n), n, delta)
		}
		scoreGrad(ds[n:], p[n:], dp[n:], delta)
	}
	l.Blend = func(dst []float64, s float64, x []float64, t float64) {
		n := len(dst) &^ 3
		if n > 0 {
			blendDoubleAVX2(start(dst, n), s, start(x, n), t, n)
		}
		blend(dst[n:], s, x[n:], t)
	}
	return l
}

// expDouble computes dst = e^(src-shift) and returns the sum, in the order of the loop in Go.
func expDouble(dst, src []float64, shift float64) float64 {
	var s [8]float64
	dst = dst[:len(src)]
	for i := 0; i < len(src); {
		i += expDoubleAVX2(&dst[i], &src[i], len(src)-i, shift, &s)
		for j := range src[i:min(i+8, len(src))] {
			dst[i+j] = math.Exp(src[i+j] - shift)
			s[j] += dst[i+j]
		}
		i += 8
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}
