//go:build gpu && linux

package cuda

import (
	"slices"
	"testing"
)

// TestHeads: heads in a matrix, and in blocks for ranks; where ranks share a head, joining adds theirs.
func TestHeads(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range []struct{ M, ranks, heads, D, before, behind, first int }{
		{1, 1, 3, 8, 0, 0, 0}, {5, 2, 4, 64, 8, 24, 16}, {33, 4, 32, 128, 0, 0, 0}, {7, 8, 2, 16, 16, 16, 32},
		{3, 4, 1, 40, 0, 40, 80}, {9, 2, 4, 5, 5, 10, 15},
		{300, 8, 8, 96, 0, 768, 96},
	} {
		own := max(1, c.heads/c.ranks)
		C, W := c.before+c.heads*c.D+c.behind, c.first+own*c.D+8
		x, values := r.random(c.M*C, 1)
		y, parts := r.random(c.ranks*c.M*W, 1)
		unit := int32(HeadsUnit(c.D))
		out := r.repeat(func() [][]byte {
			X, Y := in(r, "apart", x), in(r, "together", y)
			r.run(Heads("heads_split", c.M, c.ranks*own, c.D), Y.Add(int64(2*c.first)), X.Add(int64(2*c.before)),
				i32(c.M), i32(c.ranks), i32(C), i32(W), i32(own), i32(c.heads), i32(c.D), unit)
			return [][]byte{get[byte](r, Y, 2*c.ranks*c.M*W)}
		})
		want := slices.Clone(parts)
		for rank := range c.ranks {
			for m := range c.M {
				copy(want[(rank*c.M+m)*W+c.first:][:own*c.D], values[m*C+c.before+rank*c.heads/c.ranks*c.D:])
			}
		}
		if !slices.Equal(bfFloats(out[0]), want) {
			t.Errorf("%+v: other blocks", c)
		}
		out = r.repeat(func() [][]byte {
			X, Y := in(r, "apart", x), in(r, "together", y)
			r.run(Heads("heads_join", c.M, c.heads, c.D), X.Add(int64(2*c.before)), Y.Add(int64(2*c.first)), i32(c.M),
				i32(c.ranks), i32(C), i32(W), i32(own), i32(c.heads), i32(c.D), unit)
			return [][]byte{get[byte](r, X, 2*c.M*C)}
		})
		want = slices.Clone(values)
		same := max(1, c.ranks/c.heads)
		for m := range c.M {
			for i := range c.heads * c.D {
				sum := float32(0)
				for s := range same {
					sum += float32(parts[((i/c.D/own*same+s)*c.M+m)*W+c.first+i%(own*c.D)])
				}
				want[m*C+c.before+i] = float64(f32(bf16(sum)))
			}
		}
		if !slices.Equal(bfFloats(out[0]), want) {
			t.Errorf("%+v: other heads", c)
		}
	}
}
