package simd

import (
	"math"
	"math/rand/v2"
	"testing"
)

// sets returns the inner loops that this machine can run.
func sets() map[string]*Loops[float32] {
	s := map[string]*Loops[float32]{"plain": plain(exp32)}
	if v := vectorLoops(); v != nil {
		s["vector"] = v
	}
	return s
}

// e to the x against float64: within one unit in the last place over all of the range, and through
// overflow, underflow, infinities and NaN.
func TestExp(t *testing.T) {
	const n = 1 << 20
	src, dst := make([]float32, n), make([]float32, n)
	for i := range src {
		src[i] = -105 + 195*float32(i)/n
	}
	for i, x := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), 0, math.Copysign(0, -1), 88.722839, 88.72284,
		-87.33655, -103.27893, -103.97208, -103.97209, 1e30, -1e30} {
		src[i*1000] = float32(x)
	}
	for name, l := range sets() {
		l.Exp(dst, src, 0)
		worst := 0.0
		for i, x := range src {
			want := math.Exp(float64(x))
			got := float64(dst[i])
			switch {
			case math.IsNaN(want) != math.IsNaN(got), math.IsInf(float64(float32(want)), 0) != math.IsInf(got, 0):
				t.Fatalf("%s: exp(%v) is %v, want %v", name, x, got, want)
			case math.IsNaN(want) || math.IsInf(got, 0):
				continue
			}
			ulp := float64(math.Nextafter32(float32(want), float32(math.Inf(1)))) - float64(float32(want))
			if math.IsInf(ulp, 0) {
				ulp = math.Ldexp(1, 104)
			}
			if d := math.Abs(got-want) / ulp; d > worst {
				worst = d
				if d > 1 {
					t.Fatalf("%s: exp(%v) is %v, want %v: %.2f units in the last place", name, x, got, want, d)
				}
			}
		}
		t.Logf("%s: within %.3f units in the last place", name, worst)
		dst[0] = 1
		if sum := l.Exp(dst[:3], []float32{1, 2, 3}, 3); math.Abs(float64(sum)-1.5032147) > 1e-6 || dst[2] != 1 {
			t.Errorf("%s: exp with a shift gives %v, sum %v", name, dst[:3], sum)
		}
	}
}

// tanh against float64: within one unit in the last place over all of the range.
func TestTanh(t *testing.T) {
	const n = 1 << 20
	worst := 0.0
	for i := range n {
		x := float32(math.Ldexp(1+float64(i%1024)/1024, i/1024%40-35))
		if i%2 == 1 {
			x = -x
		}
		got, want := tanh32(x), math.Tanh(float64(x))
		ulp := math.Abs(float64(math.Nextafter32(float32(want), 2)) - float64(float32(want)))
		worst = max(worst, math.Abs(float64(got)-want)/ulp)
	}
	t.Logf("within %.3f units in the last place", worst)
	if worst > 1 {
		t.Errorf("%.3f units in the last place from float64's", worst)
	}
	for x, want := range map[float64]float64{0: 0, math.Inf(1): 1, math.Inf(-1): -1, 1e30: 1, -1e30: -1} {
		if got := tanh32(float32(x)); float64(got) != want {
			t.Errorf("tanh(%v) is %v", x, got)
		}
	}
	if x := tanh32(float32(math.NaN())); x == x {
		t.Errorf("tanh of no number is %v", x)
	}
}

// TestDoubleLoops checks that the loops for float64 have the bits of those in Go, at every length, with values outside
// the range of the vector form at every place.
func TestDoubleLoops(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	want, got := plain(math.Exp), Best[float64]()
	same := func(what string, n int, a, b []float64) {
		t.Helper()
		for i := range b {
			if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
				t.Fatalf("%s of %d: element %d is %v, want %v", what, n, i, a[i], b[i])
			}
		}
	}
	unusual := []float64{math.Inf(-1), math.NaN(), -708.5, -708, -745, -746, 709, 709.5, 710, math.Inf(1), 0,
		math.Copysign(0, -1), 1e-300, -1e300, 708.99999, -707.99999}
	vector := func(n int, wide float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = wide * r.NormFloat64()
		}
		return v
	}
	for round := range 4000 {
		n := round % 75
		a := vector(n, []float64{1, 30, 300}[round%3])
		if n > 0 && round%2 == 1 {
			a[r.IntN(n)] = unusual[r.IntN(len(unusual))]
		}
		x, y, shift := make([]float64, n), make([]float64, n), r.NormFloat64()
		if round%4 == 0 {
			shift = 0
		}
		sum, plainSum := got.Exp(x, a, shift), want.Exp(y, a, shift)
		same("Exp", n, append(x, sum), append(y, plainSum))
		b := vector(n, 3)
		got.ScoreGrad(x, a, b, shift)
		want.ScoreGrad(y, a, b, shift)
		same("ScoreGrad", n, x, y)
		copy(x, b)
		copy(y, b)
		got.Blend(x, shift, a, 0.7)
		want.Blend(y, shift, a, 0.7)
		same("Blend", n, x, y)
	}
}

// Every loop at every length against plain Go in float64, with guards behind the results.
func TestLoops(t *testing.T) {
	const guard = 42
	r := rand.New(rand.NewPCG(1, 2))
	vector := func(n int) ([]float32, []float64) {
		v, w := make([]float32, n+1), make([]float64, n)
		for i := range w {
			v[i] = float32(r.NormFloat64())
			w[i] = float64(v[i])
		}
		v[n] = guard
		return v[:n], w
	}
	want := plain(math.Exp)
	for name, l := range sets() {
		for n := range 75 {
			a, a64 := vector(n)
			b, b64 := vector(n)
			c, c64 := vector(n)
			d, d64 := vector(n)
			x, x64 := vector(n)
			y, y64 := vector(n)
			check := func(loop string, bound float64, got []float32, want []float64) {
				t.Helper()
				for i := range want {
					if !(math.Abs(float64(got[i])-want[i]) <= bound*math.Max(1, math.Abs(want[i]))) {
						t.Fatalf("%s %s of %d: element %d is %v, want %v", name, loop, n, i, got[i], want[i])
					}
				}
				if got[:n+1][n] != guard {
					t.Fatalf("%s %s of %d writes beyond the end", name, loop, n)
				}
			}
			one := func(loop string, bound float64, got float32, want float64) {
				t.Helper()
				if !(math.Abs(float64(got)-want) <= bound) && float64(got) != want {
					t.Fatalf("%s %s of %d is %v, want %v", name, loop, n, got, want)
				}
			}
			one("Dot", 1e-5, l.Dot(a, b), want.Dot(a64, b64))
			one("Max", 0, l.Max(a), want.Max(a64))
			one("exp's sum", 1e-4, l.Exp(x, a, 0.5), want.Exp(x64, a64, 0.5))
			check("Exp", 1e-6, x, x64)
			l.Scale(x, a, 0.3)
			want.Scale(x64, a64, float64(float32(0.3)))
			check("Scale", 1e-6, x, x64)
			l.ScaleMul(x, a, 0.3, b)
			want.ScaleMul(x64, a64, float64(float32(0.3)), b64)
			check("ScaleMul", 1e-6, x, x64)
			l.Blend(x, 2, a, 3)
			want.Blend(x64, 2, a64, 3)
			check("Blend", 1e-6, x, x64)
			l.SwiGLU(x, a, b)
			want.SwiGLU(x64, a64, b64)
			check("SwiGLU", 1e-6, x, x64)
			l.SwiGLUGrad(x, y, a, b, c)
			want.SwiGLUGrad(x64, y64, a64, b64, c64)
			check("SwiGLUGrad", 1e-6, x, x64)
			check("SwiGLUGrad", 1e-6, y, y64)
			l.GeGLU(x, a, b)
			want.GeGLU(x64, a64, b64)
			check("GeGLU", 1e-6, x, x64)
			l.GeGLUGrad(x, y, a, b, c)
			want.GeGLUGrad(x64, y64, a64, b64, c64)
			check("GeGLUGrad", 1e-6, x, x64)
			check("GeGLUGrad", 1e-6, y, y64)
			l.SoftCap(x, a, 1.5)
			want.SoftCap(x64, a64, 1.5)
			check("SoftCap", 1e-6, x, x64)
			l.ScoreGrad(x, a, b, 0.7)
			want.ScoreGrad(x64, a64, b64, float64(float32(0.7)))
			check("ScoreGrad", 1e-6, x, x64)
			l.Rotate(x, y, a, b, c, d, -1)
			want.Rotate(x64, y64, a64, b64, c64, d64, -1)
			check("Rotate", 1e-6, x, x64)
			check("Rotate", 1e-6, y, y64)
			if e := n &^ 7; e > 0 {
				l.RotateEights(x[:e], a, b, c, -1)
				want.RotateEights(x64[:e], a64, b64, c64, -1)
				check("RotateEights", 1e-6, x, x64)
			}
			half := make([]uint16, n)
			for i := range half {
				half[i] = uint16(r.Uint32())&^(31<<10) | 15<<10 // no infinities, no NaN
			}
			l.FromBF16(x, half)
			want.FromBF16(x64, half)
			check("FromBF16", 0, x, x64)
			l.FromF16(x, half)
			want.FromF16(x64, half)
			check("FromF16", 0, x, x64)
		}
	}
}

// A number that is none does not hide the largest that is one.
func TestMaxOfNaN(t *testing.T) {
	for name, l := range sets() {
		for at := range 33 {
			v := make([]float32, 33)
			for i := range v {
				v[i] = float32(i%7) - 50
			}
			v[at] = float32(math.NaN())
			if got := l.Max(v); got != -44 {
				t.Errorf("%s: NaN at %d: the largest is %v", name, at, got)
			}
		}
		if got := l.Max(nil); !math.IsInf(float64(got), -1) {
			t.Errorf("%s: the largest of nothing is %v", name, got)
		}
	}
}

func BenchmarkLoops(b *testing.B) {
	const n = 1 << 12
	v := func() []float32 {
		s := make([]float32, n)
		for i := range s {
			s[i] = float32(i%100) / 50
		}
		return s
	}
	x, y, p, q, w := v(), v(), v(), v(), v()
	for name, l := range sets() {
		for loop, f := range map[string]func(){
			"exp":        func() { l.Exp(x, p, 1) },
			"swiglu":     func() { l.SwiGLU(x, p, q) },
			"swigluGrad": func() { l.SwiGLUGrad(x, y, p, q, w) },
			"dot":        func() { l.Dot(p, q) },
		} {
			b.Run(name+"/"+loop, func(b *testing.B) {
				b.SetBytes(4 * n)
				for b.Loop() {
					f()
				}
			})
		}
	}
}
