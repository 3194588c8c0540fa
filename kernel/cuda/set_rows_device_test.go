//go:build gpu && linux

package cuda

import (
	"fmt"
	"slices"
	"testing"
)

// TestSetRows: rows of a table are put, added or cleared, in place too, and rows beyond the table are NaN.
func TestSetRows(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][3]int{{1, 1, 1}, {5, 64, 2}, {7, 33, 3}, {300, 4096, 40}} {
			M, C, R := c[0], c[1], c[2]
			from := make([]int32, M)
			for m := range from {
				from[m] = int32(m*7%(R+2)) - 2
			}
			for _, entry := range []string{"set_rows_put", "set_rows_add", "set_rows_clear"} {
				var x, table []float64
				n := M * C * r.size()
				out := r.repeat(func() [][]byte {
					var xb, tb []byte
					xb, x = r.numbers(M*C, 1)
					tb, table = r.numbers(R*C, 1)
					X, T, Y, F := in(r, "x", xb), in(r, "table", tb), r.out("y", int64(n)), in(r, "from", from)
					r.run(SetRows(entry, M, C), Y, X, T, F, i32(R), i32(C))
					r.run(SetRows(entry, M, C), X, X, T, F, i32(R), i32(C))
					return [][]byte{get[byte](r, Y, n), get[byte](r, X, n)}
				})
				if !slices.Equal(out[0], out[1]) {
					t.Errorf("%s [%d,%d]: another result in place", entry, M, C)
				}
				want := slices.Clone(x)
				for m, row := range from {
					for c := range C {
						switch at := m*C + c; {
						case row < 0:
						case entry == "set_rows_clear":
							want[at] = 0
						case entry == "set_rows_put":
							want[at] = table[int(row)*C+c]
						default:
							want[at] += table[int(row)*C+c]
						}
					}
				}
				r.near(t, fmt.Sprintf("%s [%d,%d]", entry, M, C), out[0], want)
			}
		}
	})
}
