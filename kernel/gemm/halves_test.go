package gemm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/kernel/simd"
)

// A GEMM with a matrix of 16-bit floats is the one with the same numbers in float32, bit for bit.
func TestHalvesBitForBit(t *testing.T) {
	p := gemm.NewPool(2)
	t.Cleanup(p.Close)
	r := rand.New(rand.NewPCG(7, 7))
	for _, f16 := range []bool{false, true} {
		to, from := simd.ToBF16, simd.FromBF16
		if f16 {
			to, from = simd.ToF16, simd.FromF16
		}
		for _, s := range [][2]int{{64, 64}, {172, 64}, {64, 172}, {37, 53}, {3, 5}, {9, 15}, {6, 17}, {576, 1536},
			{20, 4100}, {5, 8192}} {
			n, k := s[0], s[1]
			h := gemm.Halves{Bits: make([]uint16, n*k), F16: f16}
			w := make([]float32, n*k)
			for i, v := range normal(n*k, r) {
				h.Bits[i] = to(v)
				w[i] = from(h.Bits[i])
			}
			for _, m := range []int{1, 2, 4, 5, 17, 64} {
				for _, trans := range []bool{true, false} {
					n, k, stride := n, k, k
					if !trans {
						n, k = k, n
					}
					for _, beta := range []float32{0, 1} {
						x, got := normal(m*k, r), normal(m*n, r)
						want := append([]float32(nil), got...)
						gemm.GemmDequantised(p, trans, m, n, k, 1, x, k, &h, beta, got, n)
						gemm.Gemm(p, false, trans, m, n, k, 1, x, k, w, stride, beta, want, n)
						for i := range want {
							if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
								t.Fatalf("f16 %v W%v M=%d transB %v beta %v: value %d is %v, want %v", f16, s, m, trans,
									beta, i, got[i], want[i])
							}
						}
					}
				}
			}
		}
	}
}
