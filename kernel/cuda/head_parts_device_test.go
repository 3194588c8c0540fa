//go:build gpu && linux

package cuda

import (
	"slices"
	"testing"
)

// TestHeadParts: columns go part by part, and back.
func TestHeadParts(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][6]int{{1, 1, 1, 0, 0, 0}, {5, 3, 2, 3, 1, 4}, {7, 2, 8, 8, 16, 24}, {33, 4, 3, 3, 0, 0},
			{9, 5, 8, 0, 16, 0}, {300, 16, 128, 128, 256, 256}} {
			M, heads, widths, head := c[0], c[1], [4]int(c[2:]), c[2]+c[3]+c[4]+c[5]
			n := M * heads * head
			var x []float64
			out := r.repeat(func() [][]byte {
				var xb []byte
				xb, x = r.numbers(n, 1)
				y, z := r.out("y", int64(n*r.size())), r.out("z", int64(n*r.size()))
				for _, back := range []bool{false, true} {
					at, unit := HeadParts(M, heads, widths, back)
					to := y
					if back {
						to = z
					}
					r.run(at, to, in(r, "x", xb), uint32(M), i32(heads), i32(widths[0]), i32(widths[1]),
						i32(widths[2]), i32(widths[3]), i32(unit))
				}
				return [][]byte{get[byte](r, y, n*r.size()), get[byte](r, z, n*r.size())}
			})
			y, z, at := make([]float64, n), make([]float64, n), 0
			for i := range M {
				from := 0
				for _, w := range widths {
					for h := range heads {
						for j := range w {
							whole := (i*heads+h)*head + from + j
							y[at], z[whole] = x[whole], x[at]
							at++
						}
					}
					from += w
				}
			}
			if !slices.Equal(out[0], r.encoded(y)) || !slices.Equal(out[1], r.encoded(z)) {
				t.Errorf("%v: other columns", c)
			}
		}
	})
}
