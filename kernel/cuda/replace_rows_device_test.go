//go:build gpu && linux

package cuda

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// TestReplaceRows: rows are copied bit for bit, or scaled and rounded once; gradients have the bits of sums in the
// order of the places; and numbers outside a table stand for no row.
func TestReplaceRows(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][3]int{{1, 1, 1}, {7, 64, 3}, {300, 1031, 2}, {2000, 48, 40}} {
			M, C, K := c[0], c[1], c[2]
			name, row := fmt.Sprint(c), C*r.size()
			at := make([]int32, M)
			for m := range at {
				at[m] = int32(r.rnd.IntN(K+2)) - 1 // the first and the last stand for no row
			}
			var xb, rowsb []byte
			var x, rows []float64
			out := r.repeat(func() [][]byte {
				xb, x = r.numbers(M*C, 1)
				rowsb, rows = r.numbers(K*C, 1)
				X, R, At := in(r, "x", xb), in(r, "rows", rowsb), in(r, "at", at)
				Y, Scaled := r.out("y", int64(M*row)), r.out("scaled", int64(M*row))
				r.run(ReplaceRows(M, C), Y, X, R, At, i32(K), i32(C), float32(1))
				r.run(ReplaceRows(M, C), Scaled, X, R, At, i32(K), i32(C), float32(5.5))
				return [][]byte{get[byte](r, Y, M*row), get[byte](r, Scaled, M*row)}
			})
			want, scaled := bytes.Clone(xb), slices.Clone(x)
			for m, k := range at {
				if k < 0 || int(k) >= K {
					continue
				}
				copy(want[m*row:], rowsb[int(k)*row:int(k+1)*row])
				for i := range C {
					scaled[m*C+i] = 5.5 * rows[int(k)*C+i]
				}
			}
			if !bytes.Equal(out[0], want) {
				t.Errorf("%s: other rows", name)
			}
			r.near(t, name+" scaled", out[1], scaled)
			r.rowSums(t, "replace_rows_grad", at, M, C, K)
			r.rowSums(t, "replace_rows_grad_wide", at, M, C, K)
		}
	})
	r := newHarness(t, 1<<20)
	ids, table := []int32{2, -1, 0, 3, 1}, []int32{5, -1, 9}
	out := r.repeat(func() [][]byte {
		Y := r.out("y", int64(4*len(ids)))
		r.run(Flat("replace_rows", "replace_rows_lookup", int64(len(ids))), Y, in(r, "ids", ids), in(r, "table", table),
			i32(len(ids)), i32(len(table)))
		return [][]byte{get[byte](r, Y, 4*len(ids))}
	})
	for m, want := range []int32{9, -1, 5, -1, -1} {
		if got := int32(uint32(out[0][4*m]) | uint32(out[0][4*m+1])<<8 | uint32(out[0][4*m+2])<<16 |
			uint32(out[0][4*m+3])<<24); got != want {
			t.Errorf("row of id %d: %d, want %d", ids[m], got, want)
		}
	}
}

// rowSums checks the gradient of rows, of values as the elements are stored or in fp32.
func (r *harness) rowSums(t *testing.T, entry string, at []int32, M, C, K int) {
	t.Helper()
	const scale = float32(5.5)
	want := make([]float32, K*C)
	out := r.repeat(func() [][]byte {
		clear(want)
		bits, dy := r.numbers(M*C, 1)
		DY := in(r, "dy", bits)
		if entry == "replace_rows_grad_wide" {
			wide := make([]float32, len(dy))
			for i, v := range dy {
				wide[i] = float32(v)
			}
			DY = in(r, "wide dy", wide)
		}
		for m, k := range at {
			for i := range C {
				if k >= 0 && int(k) < K {
					want[int(k)*C+i] += float32(scale * float32(dy[m*C+i]))
				}
			}
		}
		to := r.out("rows' gradient", int64(4*K*C))
		r.run(ReplaceRowsGrad(entry, K, C), to, DY, in(r, "at", at), i32(M), i32(C), scale)
		return [][]byte{get[byte](r, to, 4*K*C)}
	})
	for i, got := range f32Floats(out[0]) {
		if float32(got) != want[i] {
			t.Fatalf("%s [%d,%d] of %d rows: number %d is %v, want %v", entry, M, C, K, i, got, want[i])
		}
	}
}
