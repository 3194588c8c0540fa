//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestLion: three steps have the bits of fp32 arithmetic that rounds every operation, the copy is their nearest bf16,
// and a clip factor that is not a number changes nothing.
func TestLion(t *testing.T) {
	r := newHarness(t, 64<<20)
	const lr, b1, b2, decay, clip = float32(1e-2), 0.9, 0.99, float32(0.1), float32(0.3)
	keep := float32(1 - float64(lr)*float64(decay))
	for _, n := range []int{1, 33, 1000, 300007} {
		p, m := make([]float32, n), make([]float32, n)
		out := r.repeat(func() [][]byte {
			grad := make([]float32, n)
			for i := range p {
				p[i], m[i] = float32(r.rnd.NormFloat64()), 0
			}
			P, M, C := in(r, "p", p), in(r, "m", m), r.out("copy", int64(2*n))
			step := func(g gpu.Ptr, factor float32) {
				r.run(Flat("lion", "lion_step", (int64(n)+3)/4), P, M, C, g, in(r, "lr", []float32{lr}),
					in(r, "clip", []float32{factor}), int64(n),
					float32(b1), float32(1-b1), float32(b2), float32(1-b2), decay)
			}
			for range 3 {
				for i := range grad {
					grad[i] = float32(r.rnd.NormFloat64())
				}
				grad[0] = 0 // a sum of zero has no sign
				step(in(r, "g", grad), clip)
				for i, g := range grad {
					d := float32(g * clip)
					c := float32(float32(b1)*m[i]) + float32(float32(1-b1)*d)
					if c > 0 {
						c = 1
					} else if c < 0 {
						c = -1
					}
					p[i] = float32(p[i]*keep) - float32(lr*c)
					m[i] = float32(float32(b2)*m[i]) + float32(float32(1-b2)*d)
				}
			}
			step(in(r, "g", grad), float32(math.NaN()))
			return [][]byte{get[byte](r, P, 4*n), get[byte](r, M, 4*n), get[byte](r, C, 2*n)}
		})
		var wide []float64
		for i, want := range [][]float32{p, m} {
			got := f32Floats(out[i])
			for j, w := range want {
				if float32(got[j]) != w {
					t.Fatalf("n %d output %d: element %d is %v, want %v", n, i, j, got[j], w)
				}
			}
		}
		for _, x := range p {
			wide = append(wide, float64(x))
		}
		nearBF16(t, fmt.Sprintf("n %d copy", n), bfFloats(out[2]), wide)
	}
}
