//go:build gpu && linux

package cuda

import (
	"slices"
	"testing"
)

func TestColumns(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range [][4]int{{1, 96, 32, 32}, {5, 5120, 3072, 1024}, {7, 21, 3, 9}, {3, 64, 4, 24},
		{300, 40, 16, 8}} {
		M, C, from, W := c[0], c[1], c[2], c[3]
		var x []uint16
		out := r.repeat(func() [][]byte {
			x, _ = r.random(M*C, 1)
			X, Y := in(r, "x", x), r.out("y", int64(2*M*W))
			r.run(Columns(M, W), Y, X.Add(int64(2*from)), i32(C), i32(W))
			return [][]byte{get[byte](r, Y, 2*M*W)}
		})
		var want []byte
		for m := range M {
			for _, v := range x[m*C+from:][:W] {
				want = append(want, byte(v), byte(v>>8))
			}
		}
		if !slices.Equal(out[0], want) {
			t.Errorf("%v: other columns", c)
		}
	}
}
