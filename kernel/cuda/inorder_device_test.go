//go:build gpu && linux

package cuda

import "testing"

// TestInOrder: the sum has the bits of fp32 additions one behind the other, at lengths and places that wide loads serve
// and that they do not; what lies behind the sum stays.
func TestInOrder(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range []struct{ n, each, world int }{{1, 1, 2}, {33, 33, 3}, {33, 36, 8}, {1000, 1000, 5},
		{300004, 300004, 8}, {300001, 300004, 2}} {
		sum, parts := make([]float32, c.n), make([]float32, c.each*c.world)
		out := r.repeat(func() [][]byte {
			for i := range sum {
				sum[i] = float32(r.rnd.NormFloat64())
			}
			for i := range parts {
				parts[i] = float32(r.rnd.NormFloat64())
			}
			S, P := in(r, "sum", sum), in(r, "parts", parts)
			r.run(InOrder(int64(c.n)), S, P, int64(c.n), int64(c.each), int32(c.world))
			for i := range sum {
				for w := range c.world {
					sum[i] += parts[w*c.each+i]
				}
			}
			return [][]byte{get[byte](r, S, 4*c.n)}
		})
		for i, got := range f32Floats(out[0]) {
			if float32(got) != sum[i] {
				t.Fatalf("%+v: element %d is %v, want %v", c, i, got, sum[i])
			}
		}
	}
}
