//go:build gpu && linux

package cuda

import (
	"fmt"
	"testing"
)

func TestBlockRotate(t *testing.T) {
	r := newHarness(t, 64<<20)
	const slice = 512
	for _, z := range [][3]int{{1, 4, 4}, {33, 12, 3}, {130, 64, 32}, {1030, 96, 48}, {700, 256, 64}} {
		M, C, B := z[0], z[1], z[2]
		slices := BlockSlices(M, slice)
		var x, w, d []float64
		out := r.repeat(func() [][]byte {
			var xb, wb, db []uint16
			xb, x = r.random(M*C, 1)
			wb, w = r.random(C*B, 1)
			db, d = r.random(M*C, 1)
			X, W, D := in(r, "x", xb), in(r, "w", wb), in(r, "d", db)
			Y, T, G := r.out("y", int64(2*M*C)), r.out("t", int64(2*M*C)), r.out("g", int64(2*C*B))
			partial := r.out("partial", int64(4*slices*C*B))
			r.run(BlockRotate(M, C, B), Y, X, W, i32(M), i32(C), i32(B), i32(0))
			r.run(BlockRotate(M, C, B), T, X, W, i32(M), i32(C), i32(B), i32(1))
			r.run(BlockOuter(M, C, B, slice), partial, X, D, i32(M), i32(C), i32(B), i32(slice))
			r.run(BlockSum(int64(C*B)), G, partial, int64(C*B), i32(slices))
			return [][]byte{get[byte](r, Y, 2*M*C), get[byte](r, T, 2*M*C), get[byte](r, G, 2*C*B)}
		})
		y, back, g := make([]float64, M*C), make([]float64, M*C), make([]float64, C*B)
		for i := range y {
			m, at := i/C, i%C/B*B
			for k := range B {
				y[i] += x[m*C+at+k] * w[(at+k)*B+i%C-at]
				back[i] += x[m*C+at+k] * w[i%C*B+k]
				g[i%C*B+k] += x[i] * d[m*C+at+k]
			}
		}
		name := fmt.Sprintf("[%d,%d] in blocks of %d: ", M, C, B)
		nearBF16(t, name+"y", bfFloats(out[0]), y)
		nearBF16(t, name+"transposed", bfFloats(out[1]), back)
		nearBF16(t, name+"outer", bfFloats(out[2]), g)
	}
}
