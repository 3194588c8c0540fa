//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"testing"
)

func TestDoRA(t *testing.T) {
	r := newHarness(t, 64<<20)
	const slice, s = 256, 0.25
	for _, c := range [][3]int{{1, 1, 1}, {3, 33, 2}, {9, 172, 8}, {300, 64, 33}, {513, 2048, 16}, {1030, 200, 64}} {
		M, N, R := c[0], c[1], c[2]
		slices := (M + slice - 1) / slice
		var u, dy []float64
		m, inv, squares, wa, gram, b := make([]float32, N), make([]float32, N), make([]float32, N), make([]float32, R*N),
			make([]float32, R*R), make([]float32, N*R)
		out := r.repeat(func() [][]byte {
			var ub, db []uint16
			ub, u = r.random(M*N, 1)
			db, dy = r.random(M*N, 1)
			for i := range N {
				m[i], inv[i], squares[i] = r.rnd.Float32()+0.5, r.rnd.Float32()+0.5, 50+float32(R*R)
			}
			for _, x := range [][]float32{wa, b} {
				for i := range x {
					x[i] = r.rnd.Float32() - 0.5
				}
			}
			for i := range R {
				for j := range i + 1 {
					gram[i*R+j] = r.rnd.Float32() - 0.5
					gram[j*R+i] = gram[i*R+j]
				}
			}
			MP, IP := in(r, "m", m), in(r, "inv", inv)
			Y, DU, DM := r.out("y", int64(2*M*N)), r.out("du", int64(2*M*N)), r.out("dm", int64(4*N))
			partial, norm := r.out("partial", int64(4*slices*N)), r.out("norm", int64(4*N))
			U := in(r, "u", ub)
			r.run(DoRAScale(M, N), Y, U, MP, IP, int64(M), i32(N))
			r.run(DoRAScaleGrad(M, N, slice), DU, partial, U, MP, IP, in(r, "dy", db), i32(M), i32(N), i32(slice))
			r.run(DoRAMagnitude(N), DM, partial, IP, i32(slices), i32(N))
			r.run(DoRANorm(N), norm, in(r, "squares", squares), in(r, "wa", wa), in(r, "gram", gram), in(r, "b", b), i32(N),
				i32(R), float32(s))
			return [][]byte{get[byte](r, Y, 2*M*N), get[byte](r, DU, 2*M*N), get[byte](r, DM, 4*N), get[byte](r, norm, 4*N)}
		})
		y, du, dm, norm := make([]float64, M*N), make([]float64, M*N), make([]float64, N), make([]float64, N)
		for i := range y {
			by := float64(m[i%N] * inv[i%N])
			y[i], du[i] = u[i]*by, dy[i]*by
			dm[i%N] += u[i] * dy[i] * float64(inv[i%N])
		}
		for n := range N {
			sum := float64(squares[n])
			for i := range R {
				sum += 2 * s * float64(b[n*R+i]) * float64(wa[i*N+n])
				for j := range R {
					sum += s * s * float64(b[n*R+i]) * float64(gram[i*R+j]) * float64(b[n*R+j])
				}
			}
			norm[n] = 1 / math.Sqrt(sum)
		}
		nearBF16(t, fmt.Sprintf("%v y", c), bfFloats(out[0]), y)
		nearBF16(t, fmt.Sprintf("%v du", c), bfFloats(out[1]), du)
		for n, got := range f32Floats(out[2]) {
			if math.Abs(got-dm[n]) > 1e-5*math.Sqrt(float64(M)) {
				t.Fatalf("%v: dm[%d] is %v, want %v", c, n, got, dm[n])
			}
		}
		for n, got := range f32Floats(out[3]) {
			if math.Abs(got-norm[n]) > 2e-6*norm[n] {
				t.Fatalf("%v: norm[%d] is %v, want %v", c, n, got, norm[n])
			}
		}
	}
}
