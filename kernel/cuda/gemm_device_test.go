//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// cut rounds towards zero.
func cut(x float64) float32 {
	f := float32(x)
	if math.Abs(float64(f)) > math.Abs(x) {
		f = math.Float32frombits(math.Float32bits(f) - 1)
	}
	return f
}

type hopperGemm struct {
	Geometry
	a, b gpu.TensorMap
}

func (r *harness) hopperGemm(l GemmLayout, M, N, K, lda, ldb, parts int, A, B gpu.Ptr) hopperGemm {
	r.t.Helper()
	g, boxA, boxB := GemmHopper(l, M, N, K, parts)
	return r.mapped(g, boxA, boxB, l, M, N, K, lda, ldb, A, B)
}

func (r *harness) mapped(g Geometry, boxA, boxB [2]int, l GemmLayout, M, N, K, lda, ldb int, A, B gpu.Ptr) hopperGemm {
	r.t.Helper()
	dims := func(trans bool, rows, cols int) []int64 {
		if trans {
			rows, cols = cols, rows
		}
		return []int64{int64(cols), int64(rows)}
	}
	a, err := gpu.NewTensorMap(A, dims(l == TN, M, K), []int64{int64(2 * lda)}, boxA[:], 128)
	r.ok(err)
	b, err := gpu.NewTensorMap(B, dims(l == NT, K, N), []int64{int64(2 * ldb)}, boxB[:], 128)
	r.ok(err)
	return hopperGemm{g, a, b}
}

func TestGemm(t *testing.T) {
	t.Run("mma", func(t *testing.T) { testGemm(t, MMA) })
	t.Run("hopper", func(t *testing.T) {
		if n, _ := gpu.Devices(); n > 0 {
			if p, err := gpu.DeviceProperties(0); err != nil || p.SM() != 90 {
				t.Skipf("the wgmma kernels need compute capability 9.0, this is %d.%d", p.Major, p.Minor)
			}
		}
		testGemm(t, Hopper)
	})
}

func testGemm(t *testing.T, family Family) {
	r := newHarness(t, 256<<20)
	type shape struct {
		layout  GemmLayout
		M, N, K int
		parts   int
		pad     int // elements added to each leading dimension
		f32     bool
		beta    float32
	}
	var cases []shape
	for _, l := range []GemmLayout{NN, NT, TN} {
		cases = append(cases, shape{l, 128, 128, 64, 1, 0, false, 0}, shape{l, 200, 136, 264, 1, 8, true, 0.5},
			shape{l, 33, 17, 45, 1, 0, false, 1},
			shape{l, 300, 16, 512, 1, 0, true, 0}, shape{l, 16, 320, 1000, 4, 0, true, 0},
			shape{l, 129, 8, 4096, 8, 0, true, 0}, shape{l, 1, 256, 128, 1, 0, false, 0},
			shape{l, 1500, 1400, 200, 1, 0, false, 0}, shape{l, 1409, 1411, 77, 1, 3, true, 1},
			shape{l, 40, 50, 16, 2, 0, true, 0}, shape{l, 1400, 2568, 200, 1, 8, false, 1},
			shape{l, 128, 256, 1000, 3, 0, true, 0}, shape{l, 8, 1024, 64, 1, 0, false, 0},
			shape{l, 1409, 2307, 77, 1, 3, true, 1}, shape{l, 1504, 1400, 136, 1, 8, true, 0.5},
			shape{l, 2560, 2560, 64, 1, 0, false, 0.5}, shape{l, 264, 200, 1000, 4, 0, true, 0},
			shape{l, 5632, 576, 72, 1, 8, false, 1})
	}
	reached := map[string]bool{}
	for _, c := range cases {
		M, N, K := c.M, c.N, c.K
		lda, ldb, ldd := K+c.pad, N+c.pad, N+c.pad
		na, nb := M*lda, K*ldb
		if c.layout == TN {
			lda = M + c.pad
			na = K * lda
		}
		if c.layout == NT {
			ldb = K + c.pad
			nb = N * ldb
		}
		if family == Hopper && (lda%8 != 0 || ldb%8 != 0) {
			continue // rows that are no multiple of 16 bytes are the other kernel's
		}
		var a, b, d0 []float64
		size := 2
		if c.f32 {
			size = 4
		}
		out := r.repeat(func() [][]byte {
			ab, af := r.random(na, 1)
			bb, bf := r.random(nb, 1)
			db, df := r.random(M*ldd, 1)
			a, b, d0 = af, bf, df
			A, B := in(r, "a", ab), in(r, "b", bb)
			var D gpu.Ptr
			if c.f32 {
				wide := make([]float32, len(df))
				for i := range wide {
					wide[i] = float32(df[i])
				}
				D = in(r, "d", wide)
			} else {
				D = in(r, "d", db)
			}
			flag := 0
			if c.f32 {
				flag = 1
			}
			to := D
			if c.parts > 1 {
				to = r.out("parts", int64(4*M*N*c.parts))
			}
			if family == Hopper {
				g := r.hopperGemm(c.layout, M, N, K, lda, ldb, c.parts, A, B)
				r.run(g.Geometry, to, g.a, g.b, i32(M), i32(N), i32(K), i32(ldd), float32(0.5), c.beta, i32(flag))
			} else {
				r.run(Gemm(c.layout, M, N, K, c.parts), to, A, B, i32(M), i32(N), i32(K), i32(lda), i32(ldb), i32(ldd),
					float32(0.5), c.beta, i32(flag))
			}
			if c.parts > 1 {
				r.run(Flat("reduce", "reduce_splits", int64(M*N)), D, to, i32(c.parts), int64(M*N), float32(1),
					float32(0))
			}
			return [][]byte{get[byte](r, D, size*M*ldd)}
		})
		ra, rb := make([]float64, M*K), make([]float64, N*K) // op(A) by rows, op(B) by columns
		for k := range K {
			for m := range M {
				if c.layout == TN {
					ra[m*K+k] = a[k*lda+m]
				} else {
					ra[m*K+k] = a[m*lda+k]
				}
			}
			for n := range N {
				if c.layout == NT {
					rb[n*K+k] = b[n*ldb+k]
				} else {
					rb[n*K+k] = b[k*ldb+n]
				}
			}
		}
		want, plain := append([]float64(nil), d0...), append([]float64(nil), d0...)
		for m := range M {
			for n := range N {
				var s float64
				var p float32 // as the tensor cores add: groups of 8 exact products, the sum cut to fp32
				x, y := ra[m*K:m*K+K], rb[n*K:n*K+K]
				for len(x) > 0 {
					var eight float64
					some := min(8, len(x))
					for i, v := range x[:some] {
						eight += v * y[i]
					}
					s += eight
					p = cut(float64(p) + eight)
					x, y = x[some:], y[some:]
				}
				want[m*ldd+n] = 0.5*s + float64(c.beta)*d0[m*ldd+n]
				plain[m*ldd+n] = float64(0.5*p + c.beta*float32(d0[m*ldd+n]))
			}
		}
		g := Gemm(c.layout, M, N, K, c.parts)
		if family == Hopper {
			g, _, _ = GemmHopper(c.layout, M, N, K, c.parts)
		}
		name := fmt.Sprintf("%+v %s", c, g.Entry)
		reached[g.Entry] = true
		if c.f32 {
			near(t, name, f32Floats(out[0]), want, plain)
		} else {
			nearBF16(t, name, bfFloats(out[0]), want)
		}
	}
	stem := "gemm"
	if family == Hopper {
		stem = "gemm_hopper"
	}
	for _, e := range entries(t, stem) {
		if !reached[e] {
			t.Errorf("no case runs %s", e)
		}
	}
}
