//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"testing"
)

func TestGeglu(t *testing.T) {
	r := newHarness(t, 64<<20)
	testGeglu(t, r, "", func(x float64) (y, slope float64) {
		k := 2 * math.Sqrt(2/math.Pi)
		s := 1 / (1 + math.Exp(-k*(x+0.044715*x*x*x)))
		return x * s, s + x*s*(1-s)*k*(1+3*0.044715*x*x)
	})
	testGeglu(t, r, "_erf", func(x float64) (y, slope float64) {
		s := math.Erfc(-x/math.Sqrt2) / 2
		return x * s, s + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
	})
}

// testGeglu compares the kernels of one form of gelu with it and its slope.
func testGeglu(t *testing.T, r *harness, form string, gelu func(x float64) (y, slope float64)) {
	t.Helper()
	for _, c := range [][3]int{{3, 172, 172}, {5, 1536, 1536}, {7, 64, 128}, {3, 33, 66}, {4, 33, 33}} {
		M, F, ld := c[0], c[1], c[2]
		var e, g []float64
		out := r.repeat(func() [][]byte {
			var eb, gb []uint16
			eb, e = r.random(M*ld, 3)
			gb, g = r.random(M*ld, 1)
			H := r.out("h", int64(2*M*F))
			r.run(Flat("geglu", "geglu_forward"+form, (int64(M*F)+7)/8), H, in(r, "e", eb), in(r, "g", gb), i32(M),
				i32(F), i32(ld))
			return [][]byte{get[byte](r, H, 2*M*F)}
		})
		h := make([]float64, M*F)
		for i := range h {
			x := i/F*ld + i%F
			y, _ := gelu(e[x])
			h[i] = y * g[x]
		}
		nearBF16(t, fmt.Sprintf("%v h%s", c, form), bfFloats(out[0]), h)
	}
	for _, n := range []int{1, 132, 516, 7680, 1000003} {
		var e, g, dh []float64
		out := r.repeat(func() [][]byte {
			var eb, gb, db []uint16
			eb, e = r.random(n, 3)
			gb, g = r.random(n, 1)
			db, dh = r.random(n, 1)
			DE, DG := r.out("de", int64(2*n)), r.out("dg", int64(2*n))
			r.run(Flat("geglu_grad", "geglu_grad"+form, (int64(n)+7)/8), DE, DG, in(r, "e", eb), in(r, "g", gb),
				in(r, "dh", db), int64(n))
			return [][]byte{get[byte](r, DE, 2*n), get[byte](r, DG, 2*n)}
		})
		de, dg := make([]float64, n), make([]float64, n)
		for i := range n {
			y, slope := gelu(e[i])
			de[i], dg[i] = dh[i]*g[i]*slope, dh[i]*y
		}
		nearBF16(t, fmt.Sprintf("de%s of %d", form, n), bfFloats(out[0]), de)
		nearBF16(t, fmt.Sprintf("dg%s of %d", form, n), bfFloats(out[1]), dg)
	}
}

func TestSoftcap(t *testing.T) {
	r := newHarness(t, 1<<20)
	for _, n := range []int{1, 1000, 100003} {
		var x []float64
		out := r.repeat(func() [][]byte {
			xv, xf := r.normal(n)
			x = xf
			X := in(r, "x", xv)
			r.run(Flat("softcap", "softcap_apply", int64(n)), X, X, float32(1.5), int64(n))
			return [][]byte{get[byte](r, X, 4*n)}
		})
		want := make([]float64, n)
		for i := range want {
			want[i] = 1.5 * math.Tanh(x[i]/1.5)
		}
		nearF32(t, fmt.Sprintf("%d numbers", n), f32Floats(out[0]), want)
	}
}
