//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// normal returns n fp32 values, deviation 1, and their float64 values.
func (r *harness) normal(n int) ([]float32, []float64) {
	v, f := make([]float32, n), make([]float64, n)
	for i := range v {
		v[i] = float32(r.rnd.NormFloat64())
		f[i] = float64(v[i])
	}
	return v, f
}

// nearSums demands that fp32 sums are within 1e-5 of float64's, relative to the norm, or where they cancel to 0 within
// 1e-5 of what cancels.
func nearSums(t *testing.T, what string, got, want []float64) {
	t.Helper()
	worst := 0.0
	for i := range want {
		if d := math.Abs(got[i] - want[i]); !(d <= worst) {
			worst = d
		}
	}
	if e := distance(got, want); !(e <= 1e-5) && !(worst <= 1e-5) {
		t.Errorf("%s: error %.3g, in one element %.3g", what, e, worst)
	}
}

func TestGemmSingle(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, l := range []GemmLayout{NN, NT, TN} {
		for _, c := range []struct {
			M, N, K, parts, pad int
			beta                float32
		}{{1, 1, 1, 1, 0, 0}, {64, 64, 16, 1, 0, 0}, {65, 63, 17, 1, 3, 0.5}, {200, 136, 264, 1, 8, 1},
			{129, 8, 4096, 8, 0, 0}, {16, 320, 1000, 3, 0, 0}, {40, 50, 16, 2, 0, 0}, {7, 300, 77, 1, 1, -2}} {
			lda, ldb, ldd := c.K+c.pad, c.N+c.pad, c.N+c.pad
			na, nb := c.M*lda, c.K*ldb
			if l == TN {
				lda = c.M + c.pad
				na = c.K * lda
			}
			if l == NT {
				ldb = c.K + c.pad
				nb = c.N * ldb
			}
			var a, b, d []float64
			out := r.repeat(func() [][]byte {
				av, af := r.normal(na)
				bv, bf := r.normal(nb)
				dv, df := r.normal(c.M * ldd)
				a, b, d = af, bf, df
				D := in(r, "d", dv)
				to := D
				if c.parts > 1 {
					to = r.out("parts", int64(4*c.M*c.N*c.parts))
				}
				r.run(GemmSingle(l, c.M, c.N, c.parts), to, in(r, "a", av), in(r, "b", bv), i32(c.M), i32(c.N),
					i32(c.K), i32(lda), i32(ldb), i32(ldd), float32(0.5), c.beta)
				if c.parts > 1 {
					r.run(Flat("reduce", "reduce_splits", int64(c.M*c.N)), D, to, i32(c.parts), int64(c.M*c.N),
						float32(1), float32(0))
				}
				return [][]byte{get[byte](r, D, 4*c.M*ldd)}
			})
			want := slices.Clone(d)
			for m := range c.M {
				for n := range c.N {
					s := 0.0
					for k := range c.K {
						ia, ib := m*lda+k, k*ldb+n
						if l == TN {
							ia = k*lda + m
						}
						if l == NT {
							ib = n*ldb + k
						}
						s += a[ia] * b[ib]
					}
					want[m*ldd+n] = 0.5*s + float64(c.beta)*d[m*ldd+n]
				}
			}
			nearSums(t, fmt.Sprintf("%s %+v", l, c), f32Floats(out[0]), want)
		}
	}
}

func TestAttentionSingle(t *testing.T) {
	for _, D := range []int{8, 16, 32, 40, 64, 72, 80, 96, 112, 128, 256, 320, 512} {
		t.Run(fmt.Sprintf("heads of %d", D), func(t *testing.T) { testAttentionSingle(t, D) })
	}
}

func testAttentionSingle(t *testing.T, D int) {
	r := newHarness(t, 64<<20)
	r.elem = "f32"
	for _, c := range []attentionCase{
		{lengths: []int{1, 31, 32, 33, 65, 17}, H: 4, K: 2, repeats: 3},
		{lengths: []int{151}, H: 3, K: 1},
		{lengths: []int{5, 100, 45}, H: 2, K: 2, window: 25, tail: true},
		{lengths: []int{1}, H: 2, K: 1},
		{lengths: []int{70}, H: 2, K: 1, window: 1},
		{lengths: []int{5, 100, 45}, H: 4, K: 2, window: 25, tail: true, cap: 1.5},
	} {
		M, cu, first := c.pack()
		H, K := c.H, c.K
		a, err := NewAttention(Single, M, H, K, D)
		if err != nil {
			t.Fatal(err)
		}
		if c.cap > 0 {
			a = a.Capped()
		}
		scale := 1 / math.Sqrt(float64(D))
		var q, k, v, do []float64
		out := r.repeat(func() [][]byte {
			qv, qf := r.normal(M * H * D)
			kv, kf := r.normal(M * K * D)
			vv, vf := r.normal(M * K * D)
			dv, df := r.normal(M * H * D)
			q, k, v, do = qf, kf, vf, df
			b := attentionBuffers{q: in(r, "q", qv), k: in(r, "k", kv), v: in(r, "v", vv), do: in(r, "do", dv),
				cu: in(r, "cu", cu),
				o:  r.out("o", int64(4*M*H*D)), lse: r.out("lse", int64(4*H*M)), delta: r.out("delta", int64(4*H*M)),
				dq: r.out("dq", int64(4*M*H*D)), dk: r.out("dk", int64(4*M*K*D)), dv: r.out("dv", int64(4*M*K*D)),
				M: M, B: len(cu) - 1, H: H, K: K, D: D, ldq: H * D, ldk: K * D, ldo: H * D, window: c.window,
				scale: float32(scale), cap: float32(c.cap)}
			f, back := r.attention(a, b)
			for _, l := range append([]*gpu.Launch{f}, back...) {
				r.ok(l.Run(r.s))
			}
			r.ok(r.s.Synchronize())
			for _, l := range append(back, f) {
				l.Free()
			}
			return [][]byte{get[byte](r, b.o, 4*M*H*D), get[byte](r, b.lse, 4*H*M), get[byte](r, b.dq, 4*M*H*D),
				get[byte](r, b.dk, 4*M*K*D), get[byte](r, b.dv, 4*M*K*D)}
		})
		want := attend(q, k, v, do, first, nil, H, K, D, scale, c.cap, false)
		for i, w := range [][]float64{want.o, want.lse, want.dq, want.dk, want.dv} {
			nearSums(t, fmt.Sprintf("heads of %d, %+v: %s", D, c, [...]string{"o", "lse", "dq", "dk", "dv"}[i]),
				f32Floats(out[i]), w)
		}
	}
}
