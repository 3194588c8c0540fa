//go:build gpu && linux

package cuda

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// TestRMSNormHeads: every row that the kernels for short rows take, in numbers that fill blocks and that do not, its
// gradient, added and over dy.
func TestRMSNormHeads(t *testing.T) {
	r := newHarness(t, 64<<20)
	const eps = 1e-5
	for _, c := range [][2]int{{1, 8}, {7, 8}, {33, 16}, {100, 40}, {129, 64}, {300, 96}, {515, 128}, {9, 136},
		{64, 256}, {4097, 128}} {
		rows, D := c[0], c[1]
		n := rows * D
		name := fmt.Sprintf("%dx%d", rows, D)
		if !FitsHeads(D) {
			t.Fatalf("%s does not fit", name)
		}
		var x, w, dy, add []float64
		out := r.repeat(func() [][]byte {
			xb, xf := r.random(n, 2)
			wb, wf := r.random(D, 1)
			db, df := r.random(n, 1)
			ab, af := r.random(n, 1)
			x, w, dy, add = xf, wf, df, af
			X, W, DY, ADD := in(r, "x", xb), in(r, "w", wb), in(r, "dy", db), in(r, "add", ab)
			Y, RSTD, DX := r.out("y", int64(2*n)), r.out("rstd", int64(4*rows)), r.out("dx", int64(2*n))
			forward, lanes := RMSNormHeads("rmsnorm_heads_forward", rows, D)
			r.run(forward, Y, RSTD, X, W, int64(rows), i32(D), i32(lanes), float32(eps))
			backward, _ := RMSNormHeads("rmsnorm_heads_backward", rows, D)
			r.run(backward, DX, DY, X, W, RSTD, gpu.Ptr(0), int64(rows), i32(D), i32(lanes))
			plain := get[byte](r, DX, 2*n)
			r.run(backward, ADD, DY, X, W, RSTD, ADD, int64(rows), i32(D), i32(lanes)) // onto add, in its memory
			r.run(backward, DY, DY, X, W, RSTD, gpu.Ptr(0), int64(rows), i32(D), i32(lanes))
			return [][]byte{get[byte](r, Y, 2*n), get[byte](r, RSTD, 4*rows), plain, get[byte](r, ADD, 2*n),
				get[byte](r, DY, 2*n)}
		})
		y, rstd, dx, onto := make([]float64, n), make([]float64, rows), make([]float64, n), make([]float64, n)
		for m := range rows {
			var ss, dot float64
			for _, v := range x[m*D:][:D] {
				ss += v * v
			}
			q := 1 / math.Sqrt(ss/float64(D)+eps)
			rstd[m] = q
			for c := range D {
				i := m*D + c
				y[i] = x[i] * q * w[c]
				dot += dy[i] * w[c] * x[i] * q
			}
			for c := range D {
				i := m*D + c
				dx[i] = q * (dy[i]*w[c] - x[i]*q*dot/float64(D))
				onto[i] = dx[i] + add[i]
			}
		}
		nearBF16(t, name+" y", bfFloats(out[0]), y)
		nearF32(t, name+" rstd", f32Floats(out[1]), rstd)
		nearBF16(t, name+" dx", bfFloats(out[2]), dx)
		nearBF16(t, name+" dx, added", bfFloats(out[3]), onto)
		if !bytes.Equal(out[2], out[4]) {
			t.Errorf("%s: over dy it is another gradient", name)
		}
	}
}

// TestRMSNormHeadsRoPE: a norm of heads that are turned, and the gradient, over dy too.
func TestRMSNormHeadsRoPE(t *testing.T) {
	r := newHarness(t, 64<<20)
	const eps, P = 1e-5, 50
	for _, c := range [][3]int{{1, 1, 16}, {7, 3, 32}, {65, 2, 64}, {40, 5, 96}, {515, 8, 128}, {9, 3, 240},
		{64, 4, 256}} {
		M, H, D := c[0], c[1], c[2]
		rows, half := M*H, D/2
		n := rows * D
		if !FitsHeadsRoPE(D) {
			t.Fatalf("%v does not fit", c)
		}
		table, positions := make([]float32, P*D), make([]int32, M)
		for p := range P {
			for i := range half {
				sin, cos := math.Sincos(float64(p) * math.Pow(10000, -float64(i)/float64(half)))
				table[p*D+i], table[p*D+half+i] = float32(cos), float32(sin)
			}
		}
		for i := range positions {
			positions[i] = int32((i*37 + 5) % P)
		}
		var x, w, dy []float64
		out := r.repeat(func() [][]byte {
			xb, xf := r.random(n, 2)
			wb, wf := r.random(D, 1)
			db, df := r.random(n, 1)
			x, w, dy = xf, wf, df
			X, W, DY, AT, TABLE := in(r, "x", xb), in(r, "w", wb), in(r, "dy", db), in(r, "positions", positions),
				in(r, "table", table)
			Y, RSTD, DX := r.out("y", int64(2*n)), r.out("rstd", int64(4*rows)), r.out("dx", int64(2*n))
			forward, lanes := RMSNormHeads("rmsnorm_heads_rope_forward", rows, D)
			r.run(forward, Y, RSTD, X, W, AT, TABLE, int64(rows), i32(D), i32(lanes), i32(H), float32(eps))
			backward, _ := RMSNormHeads("rmsnorm_heads_rope_backward", rows, D)
			r.run(backward, DX, DY, X, W, RSTD, AT, TABLE, int64(rows), i32(D), i32(lanes), i32(H))
			r.run(backward, DY, DY, X, W, RSTD, AT, TABLE, int64(rows), i32(D), i32(lanes), i32(H))
			return [][]byte{get[byte](r, Y, 2*n), get[byte](r, RSTD, 4*rows), get[byte](r, DX, 2*n),
				get[byte](r, DY, 2*n)}
		})
		y, rstd, dx := make([]float64, n), make([]float64, rows), make([]float64, n)
		for m := range rows {
			at := table[int(positions[m/H])*D:]
			turned := func(v []float64, sign float64) []float64 {
				u := make([]float64, D)
				for i := range half {
					cos, sin := float64(at[i]), sign*float64(at[half+i])
					u[i], u[half+i] = v[i]*cos-v[half+i]*sin, v[half+i]*cos+v[i]*sin
				}
				return u
			}
			var ss, dot float64
			for _, v := range x[m*D:][:D] {
				ss += v * v
			}
			q := 1 / math.Sqrt(ss/float64(D)+eps)
			rstd[m] = q
			normed := make([]float64, D)
			for c := range D {
				normed[c] = x[m*D+c] * q * w[c]
			}
			copy(y[m*D:], turned(normed, 1))
			back := turned(dy[m*D:][:D], -1)
			for c := range D {
				dot += back[c] * w[c] * x[m*D+c] * q
			}
			for c := range D {
				dx[m*D+c] = q * (back[c]*w[c] - x[m*D+c]*q*dot/float64(D))
			}
		}
		name := fmt.Sprint(c)
		nearBF16(t, name+" y", bfFloats(out[0]), y)
		nearF32(t, name+" rstd", f32Floats(out[1]), rstd)
		nearBF16(t, name+" dx", bfFloats(out[2]), dx)
		if !bytes.Equal(out[2], out[3]) {
			t.Errorf("%s: over dy it is another gradient", name)
		}
	}
}

// TestScale: lengths that are multiples of eight and that are not, in place and not.
func TestScale(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, n := range []int{1, 7, 8, 1000, 1 << 20, 1<<20 + 3} {
		for _, alpha := range []float32{12, -0.37} {
			var x []float64
			out := r.repeat(func() [][]byte {
				xb, xf := r.random(n, 2)
				x = xf
				X, Y := in(r, "x", xb), r.out("y", int64(2*n))
				r.run(Elementwise("elementwise_scale", int64(n)), Y, X, alpha, int64(n))
				r.run(Elementwise("elementwise_scale", int64(n)), X, X, alpha, int64(n))
				return [][]byte{get[byte](r, Y, 2*n), get[byte](r, X, 2*n)}
			})
			want := make([]float64, n)
			for i, v := range x {
				want[i] = float64(alpha) * v
			}
			nearBF16(t, fmt.Sprintf("%d by %v", n, alpha), bfFloats(out[0]), want)
			if !bytes.Equal(out[0], out[1]) {
				t.Errorf("%d by %v: in place it is another result", n, alpha)
			}
		}
	}
}
