//go:build !amd64

package simd

import "math"

// This processor has no vector forms: every loop is the plain one.

func vectorLoops() *Loops[float32] { return nil }

func doubleLoops() *Loops[float64] { return plain(math.Exp) }

// AdamW is nil.
func AdamW() func(p, g, m, v []float32, s AdamScalars[float32]) int { return nil }

// Dropout is nil.
func Dropout(threshold uint32, scale float32) func(y, x []float32, group uint64, step uint32, keys [10][2]uint32) int {
	return nil
}

const noVectors = "attention without AVX-512: gemm.Path says what there is"

func Scores(dst, q, x *float32, stride, n, d int) { panic(noVectors) }

func Softmax(p *float32, n int, stat *float32) { panic(noVectors) }

func SoftmaxGrad(s, dp *float32, n int, stat *float32, scale float32) { panic(noVectors) }

func Gather(acc, fix, p, x *float32, stride, n, d int) { panic(noVectors) }

func Spread(dst, p, x *float32, dstStride, xStride, n, d int) { panic(noVectors) }

func Columns(dst, src *float32, stride, d int, scale float32) { panic(noVectors) }

func Rows(dst *float32, stride int, src, factor *float32, d int) { panic(noVectors) }

func Dots(dst, a, b *float32, d int) { panic(noVectors) }
