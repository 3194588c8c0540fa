package kernel_test

import (
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestSwiGLU(t *testing.T) {
	for _, size := range [][]int{{3, 7}, {1, 1}, {8, 172}, {13, 700}} {
		x := kerneltest.Normal(size...)
		kerneltest.Run(t,
			kerneltest.Case{Name: "forward " + kernel.T(kernel.F32, size...).String(), Kernel: kernel.SwiGLU{},
				In: []kerneltest.Input{x, x}, Bound: 2.5e-7},
			kerneltest.Case{Name: "backward " + kernel.T(kernel.F32, size...).String(), Kernel: kernel.SwiGLUGrad{},
				In: []kerneltest.Input{x, x, x}, Bound: 2.5e-7},
		)
	}
}

// Gates so large that exp overflows or vanishes, and numbers that are none.
func TestSwiGLUExtremes(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	gates := []float64{-1e4, -104.5, -90, -88, -10, -0.5, 0, 0.5, 10, 88, 104, 1e4, inf, nan, 1, 2, 3}
	ones := make([]float64, len(gates))
	single, oneSingle := make([]float32, len(gates)), make([]float32, len(gates))
	want, grad := make([]float64, len(gates)), make([]float64, len(gates))
	for i, g := range gates {
		ones[i], single[i], oneSingle[i] = 1, float32(g), 1
		s := 1 / (1 + math.Exp(-g))
		want[i], grad[i] = g*s, s*(1+g*(1-s))
	}
	n := len(gates)
	double := evaluate(t, kernel.SwiGLU{}, f64s(gates, 1, n), f64s(ones, 1, n))[0].F64()
	near(t, "f64", double, want, 1e-14)
	near(t, "f32", widen(evaluate(t, kernel.SwiGLU{}, f32s(single, 1, n), f32s(oneSingle, 1, n))[0].F32()), want, 4e-6)
	got := evaluate(t, kernel.SwiGLUGrad{}, f32s(single, 1, n), f32s(oneSingle, 1, n), f32s(oneSingle, 1, n))
	finite := grad[:12]
	near(t, "f32 gradient", widen(got[0].F32())[:12], finite, 1e-6)
	if !math.IsNaN(float64(got[0].F32()[13])) || !math.IsNaN(float64(got[1].F32()[13])) {
		t.Error("the gradient at NaN is a number")
	}
}

func widen(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

func TestSwiGLUGateUp(t *testing.T) {
	for _, s := range [][2]int{{3, 7}, {1, 1}, {8, 172}, {13, 700}, {3000, 5}} {
		x, h := kerneltest.Normal(s[0], 2*s[1]), kerneltest.Normal(s[0], s[1])
		name := kernel.T(kernel.F32, s[:]...).String()
		kerneltest.Run(t,
			kerneltest.Case{Name: "forward " + name, Kernel: kernel.SwiGLUGateUp{}, In: []kerneltest.Input{x},
				Bound: 2.5e-7},
			kerneltest.Case{Name: "backward " + name, Kernel: kernel.SwiGLUGateUpGrad{}, In: []kerneltest.Input{x, h},
				Bound: 2.5e-7},
		)
	}
	if _, err := (kernel.SwiGLUGateUp{}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 7)}); err == nil {
		t.Error("rows of seven elements are accepted")
	}
}

// TestSwiGLUGateUpIsSwiGLU: the bits are those of two projections side by side.
func TestSwiGLUGateUpIsSwiGLU(t *testing.T) {
	const rows, inner = 9, 48
	x, dh := normal32(1, rows*2*inner), normal32(2, rows*inner)
	var gate, up []float32
	for r := range rows {
		gate = append(gate, x[2*r*inner:][:inner]...)
		up = append(up, x[(2*r+1)*inner:][:inner]...)
	}
	half := func(v []float32) kernel.Tensor { return f32s(v, rows, inner) }
	want := evaluate(t, kernel.SwiGLU{}, half(gate), half(up))[0].F32()
	if got := evaluate(t, kernel.SwiGLUGateUp{}, f32s(x, rows, 2*inner))[0].F32(); !slices.Equal(got, want) {
		t.Error("forward differs from SwiGLU")
	}
	parts := evaluate(t, kernel.SwiGLUGrad{}, half(gate), half(up), half(dh))
	got := evaluate(t, kernel.SwiGLUGateUpGrad{}, f32s(x, rows, 2*inner), half(dh))[0].F32()
	for r := range rows {
		if !slices.Equal(got[2*r*inner:][:inner], parts[0].F32()[r*inner:][:inner]) ||
			!slices.Equal(got[(2*r+1)*inner:][:inner], parts[1].F32()[r*inner:][:inner]) {
			t.Fatalf("the gradient of row %d differs from SwiGLU's", r)
		}
	}
}
