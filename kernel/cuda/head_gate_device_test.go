//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

func TestHeadGate(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][2]int{{1, 1}, {3, 8}, {7, 33}, {65, 24}, {130, 256}, {6000, 136}} {
			R, D := c[0], c[1]
			n := R * D
			var x, both, dy []float64
			size := r.size()
			out := r.repeat(func() [][]byte {
				var xb, bb, db []byte
				xb, x = r.numbers(n, 1)
				bb, both = r.numbers(2*n, 4)
				db, dy = r.numbers(n, 1)
				X, B := in(r, "x", xb), in(r, "both", bb)
				Y, DX, DB := r.out("y", int64(n*size)), r.out("dx", int64(n*size)), r.out("dboth", int64(2*n*size))
				r.run(HeadGate("head_gate_forward", int64(R), D), Y, X, B, uint32(R), i32(D))
				r.run(HeadGate("head_gate_grad", int64(R), D), DX, DB, X, B, in(r, "dy", db), uint32(R), i32(D))
				in := in(r, "in place", xb)
				r.run(HeadGate("head_gate_forward", int64(R), D), in, in, B, uint32(R), i32(D))
				return [][]byte{get[byte](r, Y, n*size), get[byte](r, DX, n*size), get[byte](r, DB, 2*n*size),
					get[byte](r, in, n*size)}
			})
			y, dx, dboth := make([]float64, n), make([]float64, n), make([]float64, 2*n)
			for i := range y {
				at := i/D*2*D + D + i%D
				s := 1 / (1 + math.Exp(-both[at]))
				y[i], dx[i], dboth[at] = x[i]*s, dy[i]*s, x[i]*dy[i]*s*(1-s)
			}
			r.near(t, fmt.Sprintf("%v y", c), out[0], y)
			r.near(t, fmt.Sprintf("%v dx", c), out[1], dx)
			r.near(t, fmt.Sprintf("%v dboth", c), out[2], dboth)
			for i, d := range r.decoded(out[2]) {
				if i%(2*D) < D && (d != 0 || math.Signbit(d)) {
					t.Fatalf("%v: the gradient of a query is %v", c, d)
				}
			}
			if !slices.Equal(out[3], out[0]) {
				t.Errorf("%v: another result in place", c)
			}
		}
	})
}

func TestHeadColumns(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][4]int{{1, 1, 0, 1}, {5, 16, 8, 8}, {7, 48, 16, 24}, {6, 48, 4, 8}, {9, 20, 8, 8},
			{33, 512, 0, 256}, {33, 21, 5, 16}, {4000, 264, 256, 8}, {3, 40, 0, 40}} {
			R, D, from, W := c[0], c[1], c[2], c[3]
			size := r.size()
			var x, dy []float64
			out := r.repeat(func() [][]byte {
				var xb, db []byte
				xb, x = r.numbers(R*D, 1)
				db, dy = r.numbers(R*W, 1)
				Y, DX := r.out("y", int64(R*W*size)), r.out("dx", int64(R*D*size))
				take, unit := HeadColumns("head_columns_take", int64(R), D, from, W)
				r.run(take, Y, in(r, "x", xb), uint32(R), i32(D), i32(from), i32(W), i32(unit))
				spread, _ := HeadColumns("head_columns_spread", int64(R), D, from, W)
				r.run(spread, DX, in(r, "dy", db), uint32(R), i32(D), i32(from), i32(W), i32(unit))
				return [][]byte{get[byte](r, Y, R*W*size), get[byte](r, DX, R*D*size)}
			})
			y, dx := []float64{}, make([]float64, R*D)
			for i := range R {
				y = append(y, x[i*D+from:][:W]...)
				copy(dx[i*D+from:][:W], dy[i*W:])
			}
			if !slices.Equal(out[0], r.encoded(y)) || !slices.Equal(out[1], r.encoded(dx)) {
				t.Errorf("%v: other columns", c)
			}
		}
	})
}

func TestScaleBy(t *testing.T) {
	elements(t, 64<<20, func(t *testing.T, r *harness) {
		for _, n := range []int{1, 7, 8, 1000, 100003} {
			var x []float64
			const by = 0.0737
			out := r.repeat(func() [][]byte {
				var xb []byte
				xb, x = r.numbers(n, 1)
				X, S, Y := in(r, "x", xb), in(r, "s", []float32{by}), r.out("y", int64(n*r.size()))
				r.run(Elementwise("elementwise_scale_by", int64(n)), Y, X, S, int64(n))
				r.run(Elementwise("elementwise_scale_by", int64(n)), X, X, S, int64(n))
				return [][]byte{get[byte](r, Y, n*r.size()), get[byte](r, X, n*r.size())}
			})
			want := make([]float64, n)
			for i := range want {
				want[i] = float64(float32(by)) * x[i]
			}
			if r.elem == "bf16" {
				for i := range want {
					want[i] = round(float64(float32(want[i])))
				}
			} else {
				for i := range want {
					want[i] = float64(float32(want[i]))
				}
			}
			if !slices.Equal(r.decoded(out[0]), want) || !slices.Equal(out[0], out[1]) {
				t.Errorf("%d: other numbers", n)
			}
		}
	})
}
