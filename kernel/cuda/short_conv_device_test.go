//go:build gpu && linux

package cuda

import (
	"fmt"
	"testing"
)

// TestShortConv: two packed sequences and rows of none, against the formula; nothing is written beside the results.
func TestShortConv(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, s := range [][3]int{{1, 1, 1}, {9, 24, 3}, {70, 43, 5}, {300, 256, 3}} {
			M, C, K := s[0], s[1], s[2]
			cu := []int32{0, int32(M / 3), int32(M - M/4)}
			var x, w []float64
			size := r.size()
			out := r.repeat(func() [][]byte {
				var xb, wb, db []byte
				xb, x = r.numbers(M*3*C, 1)
				wb, w = r.numbers(C*K, 1)
				db, _ = r.numbers(M*C, 1)
				X, W, CU := in(r, "x", xb), in(r, "w", wb), in(r, "cu", cu)
				y, dx := r.out("y", int64(M*C*size)), r.out("dx", int64(M*3*C*size))
				r.run(ShortConv("short_conv", M, C), y, X, W, CU, i32(M), i32(C), i32(2), i32(K))
				r.run(ShortConv("short_conv_grad", M, C), dx, X, W, CU, in(r, "dy", db), i32(M), i32(C), i32(2), i32(K))
				return [][]byte{get[byte](r, y, M*C*size), get[byte](r, dx, M*3*C*size)}
			})
			want := make([]float64, M*C)
			for q := range 2 {
				for row := int(cu[q]); row < int(cu[q+1]); row++ {
					for c := range C {
						sum := 0.0
						for j := range K {
							if from := row - K + 1 + j; from >= int(cu[q]) {
								u := x[from*3*C+c] * x[from*3*C+2*C+c]
								sum += w[c*K+j] * r.decoded(r.encoded([]float64{u}))[0]
							}
						}
						want[row*C+c] = sum * x[row*3*C+C+c]
					}
				}
			}
			r.near(t, fmt.Sprintf("%v y", s), out[0], want)
			for i, d := range r.decoded(out[1])[int(cu[2])*3*C:] {
				if d != 0 {
					t.Fatalf("%v: value %d of rows in no sequence has the gradient %v", s, i, d)
				}
			}
		}
	})
}
