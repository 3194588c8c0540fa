package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/quant"
)

var _ gemm.Dequantiser = (*quant.Packed)(nil)

func normal(n int, r *rand.Rand) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// A GEMM with packed NF4 weights is the one with the dequantised ones.
func TestPackedWeightsBitForBit(t *testing.T) {
	p := gemm.NewPool(2)
	t.Cleanup(p.Close)
	r := rand.New(rand.NewPCG(4, 4))
	for _, nested := range []bool{true, false} {
		cfg := quant.Default()
		cfg.DoubleQuant = nested
		for _, s := range [][2]int{{64, 64}, {172, 64}, {64, 172}, {37, 53}, {576, 1536}} {
			rows, cols := s[0], s[1]
			packed, err := quant.Quantise(normal(rows*cols, r), rows, cols, cfg)
			if err != nil {
				t.Fatal(err)
			}
			w := make([]float32, rows*cols)
			packed.Dequantise(w)
			for _, m := range []int{1, 2, 5, 17, 128} {
				for _, trans := range []bool{true, false} {
					n, k := rows, cols
					if !trans {
						n, k = cols, rows
					}
					x, got, want := normal(m*k, r), make([]float32, m*n), make([]float32, m*n)
					gemm.GemmDequantised(p, trans, m, n, k, 1, x, k, &packed, 0, got, n)
					gemm.Gemm(p, false, trans, m, n, k, 1, x, k, w, cols, 0, want, n)
					for i := range want {
						if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
							t.Fatalf("nested %v W[%d,%d] M=%d transB %v: value %d is %v, want %v", nested, rows, cols,
								m, trans, i, got[i], want[i])
						}
					}
				}
			}
		}
	}
}

// BenchmarkPacked is BenchmarkGemm with weights that stay NF4.
func BenchmarkPacked(b *testing.B) {
	for _, workers := range []int{1, 2} {
		for _, w := range [][2]int{{576, 576}, {1536, 576}, {2048, 2048}, {4096, 4096}} {
			for _, m := range []int{1, 16, 128, 512} {
				for _, trans := range []bool{true, false} {
					n, k := w[0], w[1]
					if !trans {
						n, k = k, n
					}
					b.Run(fmt.Sprintf("threads=%d/M=%d/N=%d/K=%d/transB=%v", workers, m, n, k, trans),
						func(b *testing.B) {
							p, r := gemm.NewPool(workers), rand.New(rand.NewPCG(1, 2))
							b.Cleanup(p.Close)
							packed, err := quant.Quantise(normal(n*k, r), w[0], w[1], quant.Default())
							if err != nil {
								b.Fatal(err)
							}
							x, y := normal(m*k, r), make([]float32, m*n)
							best := time.Hour
							for b.Loop() {
								start := time.Now()
								gemm.GemmDequantised(p, trans, m, n, k, 1, x, k, &packed, 0, y, n)
								best = min(best, time.Since(start))
							}
							b.ReportMetric(2*float64(m)*float64(n)*float64(k)/float64(best.Nanoseconds()), "GFLOP/s")
						})
				}
			}
		}
	}
}
