package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkGemm is Y = X Wᵀ and dX = dY W, the GEMMs that scripts/bench/gemm.sh
// compares with OpenBLAS.
func BenchmarkGemm(b *testing.B) {
	for _, workers := range []int{1, 2} {
		for _, w := range [][2]int{{576, 576}, {1536, 576}, {2048, 2048}, {4096, 4096}} {
			for _, m := range []int{1, 16, 128, 512} {
				for _, trans := range []bool{true, false} {
					n, k, ldb := w[0], w[1], w[1]
					if !trans {
						n, k, ldb = w[1], w[0], w[1]
					}
					b.Run(fmt.Sprintf("threads=%d/M=%d/N=%d/K=%d/transB=%v", workers, m, n, k, trans),
						func(b *testing.B) {
							p, r := newPool(b, workers), rand.New(rand.NewPCG(1, 2))
							x, wt, y := fill[float32](m*k, r), fill[float32](n*k, r), make([]float32, m*n)
							rate(b, m, n, k, func() { Gemm(p, false, trans, m, n, k, 1, x, k, wt, ldb, 0, y, n) })
						})
				}
			}
		}
	}
}

// rate reports the best call: a shared machine only ever adds time.
func rate(b *testing.B, m, n, k int, f func()) {
	best := time.Hour
	for b.Loop() {
		start := time.Now()
		f()
		best = min(best, time.Since(start))
	}
	b.ReportMetric(2*float64(m)*float64(n)*float64(k)/float64(best.Nanoseconds()), "GFLOP/s")
}

// BenchmarkLowRank is what LoRA of rank R adds to one Linear, for M tokens.
func BenchmarkLowRank(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	p := newPool(b, 1)
	const M, C = 512, 576
	x, small, other := fill[float32](M*C, r), fill[float32](64*C, r), fill[float32](64*C, r)
	y := make([]float32, M*C)
	for _, R := range []int{4, 8, 16, 64} {
		for name, f := range map[string]func(){
			"T=XAt":  func() { Gemm(p, false, true, M, R, C, 1, x, C, small, C, 0, y, R) },
			"dX+=TA": func() { Gemm(p, false, false, M, C, R, 1, other, R, small, C, 1, y, C) },
			"dA=TtX": func() { Gemm(p, true, false, R, C, M, 1, other, R, x, C, 0, y, C) },
			"dB=YtT": func() { Gemm(p, true, false, C, R, M, 1, x, C, other, R, 0, y, R) },
		} {
			b.Run(fmt.Sprintf("R=%d/%s", R, name), func(b *testing.B) {
				rate(b, M, C, R, f)
			})
		}
	}
}
