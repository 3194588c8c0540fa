// Package simd holds the inner loops of the CPU's operations: each in plain Go, which is its meaning, and the vector
// form beside it (AVX2, AVX-512) where a processor has one. Which runs is decided once, when the program starts;
// TRAINER_CPU=generic asks for plain Go. It knows slices and no tensors.
package simd

import "math"

// Float is what the loops compute in.
type Float interface{ float32 | float64 }

// Loops are the inner loops that the bodies of several operations share, over slices of equal length.
// There is one set in plain Go for both number types, one for float32 in AVX2, and one for float64 whose slowest loops
// are in AVX2.
type Loops[F Float] struct {
	Exp        func(dst, src []F, shift F) F      // dst = exp(src - shift); returns the sum
	Max        func(src []F) F                    // the largest element that is not NaN, -Inf of none
	Dot        func(a, b []F) F                   // sum a*b
	Scale      func(dst, a []F, s F)              // dst = a*s
	ScaleMul   func(dst, a []F, s F, b []F)       // dst = (a*s)*b
	Blend      func(dst []F, s F, x []F, t F)     // dst = dst*s + x*t
	SwiGLU     func(h, gate, up []F)              // h = silu(gate)*up
	SwiGLUGrad func(dgate, dup, gate, up, dh []F) // the two gradients of swiglu
	GeGLU      func(h, gate, up []F)              // h = gelu(gate)*up, gelu by tanh
	GeGLUGrad  func(dgate, dup, gate, up, dh []F) // the two gradients of geglu
	SoftCap    func(dst, src []F, cap F)          // dst = cap*tanh(src/cap)
	ScoreGrad  func(ds, p, dp []F, delta F)       // ds = p*(dp-delta)
	FromBF16   func(dst []F, src []uint16)        // dst = src, stored in bf16
	FromF16    func(dst []F, src []uint16)        // dst = src, stored in f16

	// y0 = x0*cos - x1*sin*sign and y1 = x1*cos + x0*sin*sign
	Rotate func(y0, y1, x0, x1, cos, sin []F, sign F)
	// Rotate for runs of eight elements, the halves of heads of that size
	RotateEights func(y, x, cos, sin []F, sign F)
}

// Best returns the fastest inner loops on this machine for a number type.
func Best[F Float]() *Loops[F] {
	var f F
	if _, single := any(f).(float32); single {
		if fast := vectorLoops(); fast != nil {
			return any(fast).(*Loops[F])
		}
		return any(plain(exp32)).(*Loops[F])
	}
	return any(doubleLoops()).(*Loops[F])
}

// plain returns the inner loops in Go.
func plain[F Float](exp func(F) F) *Loops[F] {
	return &Loops[F]{
		Exp: func(dst, src []F, shift F) F {
			var s [8]F // eight partial sums: rounding errors grow with the terms of each
			dst = dst[:len(src)]
			for i, x := range src {
				dst[i] = exp(x - shift)
				s[i%8] += dst[i]
			}
			return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
		},
		Max: func(src []F) F {
			m := F(math.Inf(-1))
			for _, x := range src {
				if x > m {
					m = x
				}
			}
			return m
		},
		Dot: func(a, b []F) F {
			var s0, s1, s2, s3 F
			b = b[:len(a)]
			i := 0
			for ; i+4 <= len(a); i += 4 {
				s0 += a[i] * b[i]
				s1 += a[i+1] * b[i+1]
				s2 += a[i+2] * b[i+2]
				s3 += a[i+3] * b[i+3]
			}
			for ; i < len(a); i++ {
				s0 += a[i] * b[i]
			}
			return (s0 + s2) + (s1 + s3)
		},
		Scale: func(dst, a []F, s F) {
			a = a[:len(dst)]
			for i := range dst {
				dst[i] = a[i] * s
			}
		},
		ScaleMul: func(dst, a []F, s F, b []F) {
			a, b = a[:len(dst)], b[:len(dst)]
			for i := range dst {
				dst[i] = a[i] * s * b[i]
			}
		},
		Blend: func(dst []F, s F, x []F, t F) {
			x = x[:len(dst)]
			for i := range dst {
				dst[i] = dst[i]*s + x[i]*t
			}
		},
		SwiGLU: func(h, gate, up []F) {
			gate, up = gate[:len(h)], up[:len(h)]
			for i := range h {
				h[i] = gate[i] / (1 + exp(-gate[i])) * up[i]
			}
		},
		SwiGLUGrad: func(dgate, dup, gate, up, dh []F) {
			dup, gate, up, dh = dup[:len(dgate)], gate[:len(dgate)], up[:len(dgate)], dh[:len(dgate)]
			for i, e := range gate {
				s := 1 / (1 + exp(-e))
				u, d := up[i], dh[i]
				dgate[i] = d * u * s * (1 + e*(1-s))
				dup[i] = d * e * s
			}
		},
		GeGLU:     geglu(exp),
		GeGLUGrad: gegluGrad(exp),
		SoftCap:   softCap[F],
		ScoreGrad: func(ds, p, dp []F, delta F) {
			p, dp = p[:len(ds)], dp[:len(ds)]
			for i := range ds {
				ds[i] = p[i] * (dp[i] - delta)
			}
		},
		FromBF16: fromBF16[F],
		FromF16:  fromF16[F],
		Rotate:   Rotate[F],
		RotateEights: func(y, x, cos, sin []F, sign F) {
			for h := 0; h < len(y); h += 8 {
				Rotate(y[h:][:4], y[h+4:][:4], x[h:], x[h+4:], cos, sin, sign)
			}
		},
	}
}

// Rotate is Loops.Rotate in plain Go, for runs of less than a vector.
func Rotate[F Float](y0, y1, x0, x1, cos, sin []F, sign F) {
	y1, x0, x1, cos, sin = y1[:len(y0)], x0[:len(y0)], x1[:len(y0)], cos[:len(y0)], sin[:len(y0)]
	for i := range y0 {
		a, b, c, s := x0[i], x1[i], cos[i], sin[i]*sign
		y0[i] = a*c - b*s
		y1[i] = b*c + a*s
	}
}

// sumBlock is how many products are added in the body's own type before float64 takes over: the error of
// a long sum then grows with its blocks only.
const sumBlock = 1024

// LongDot returns the sum of a*b in float64 over blocks.
func LongDot[F Float](l *Loops[F], a, b []F) float64 {
	var sum float64
	for len(a) > sumBlock {
		sum += float64(l.Dot(a[:sumBlock], b[:sumBlock]))
		a, b = a[sumBlock:], b[sumBlock:]
	}
	return sum + float64(l.Dot(a, b))
}

// LongExp returns dst = exp(src - shift), and its sum in float64 over blocks.
func LongExp[F Float](l *Loops[F], dst, src []F, shift F) float64 {
	var sum float64
	for len(src) > sumBlock {
		sum += float64(l.Exp(dst[:sumBlock], src[:sumBlock], shift))
		dst, src = dst[sumBlock:], src[sumBlock:]
	}
	return sum + float64(l.Exp(dst, src, shift))
}
