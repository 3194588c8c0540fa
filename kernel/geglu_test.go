package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestGeGLU(t *testing.T) {
	for _, size := range [][]int{{3, 7}, {1, 1}, {8, 172}, {13, 700}} {
		x := kerneltest.Normal(size...)
		kerneltest.Run(t,
			kerneltest.Case{Name: "forward " + kernel.T(kernel.F32, size...).String(), Kernel: kernel.GeGLU{},
				In: []kerneltest.Input{x, x}, Bound: 2.5e-7},
			kerneltest.Case{Name: "backward " + kernel.T(kernel.F32, size...).String(), Kernel: kernel.GeGLUGrad{},
				In: []kerneltest.Input{x, x, x}, Bound: 8e-7},
			kerneltest.Case{Name: "exact forward " + kernel.T(kernel.F32, size...).String(),
				Kernel: kernel.GeGLU{Erf: true}, In: []kerneltest.Input{x, x}, Bound: 2.5e-7},
			kerneltest.Case{Name: "exact backward " + kernel.T(kernel.F32, size...).String(),
				Kernel: kernel.GeGLUGrad{Erf: true}, In: []kerneltest.Input{x, x, x}, Bound: 8e-7},
		)
	}
}

// The formula as torch documents it, through tanh, and gates so large that exp overflows or vanishes.
func TestGeGLUMeaning(t *testing.T) {
	gates := []float64{-1e4, -30, -10, -5, -3, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 3, 5, 10, 30, 1e4}
	n := len(gates)
	ones, want := make([]float64, n), make([]float64, n)
	single, oneSingle := make([]float32, n), make([]float32, n)
	for i, x := range gates {
		ones[i], single[i], oneSingle[i] = 1, float32(x), 1
		want[i] = x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) / 2
	}
	near(t, "f64", evaluate(t, kernel.GeGLU{}, f64s(gates, 1, n), f64s(ones, 1, n))[0].F64(), want, 1e-13)
	near(t, "f32", widen(evaluate(t, kernel.GeGLU{}, f32s(single, 1, n), f32s(oneSingle, 1, n))[0].F32()), want, 4e-6)
	got := evaluate(t, kernel.GeGLUGrad{}, f32s(single, 1, n), f32s(oneSingle, 1, n), f32s(oneSingle, 1, n))
	near(t, "f32 gradient of up", widen(got[1].F32()), want, 4e-6)
	near(t, "far gradients of gate", []float64{float64(got[0].F32()[0]), float64(got[0].F32()[n-1])}, []float64{0, 1},
		0)
	nan := f32s([]float32{float32(math.NaN())}, 1, 1)
	if x := evaluate(t, kernel.GeGLU{}, nan, nan)[0].F32()[0]; x == x {
		t.Error("a gate that is no number gives one")
	}
}

// Values of x*Phi(x) and of its derivative to 17 digits, and gates so large that nothing is left of them or all.
func TestExactGeGLUMeaning(t *testing.T) {
	gates := []float64{-1e4, -3, -1, -0.5, 0, 0.5, 1, 3, 1e4}
	want := []float64{0, -0.0040496940948902836, -0.15865525393145705, -0.15426876936299345, 0.0, 0.34573123063700655,
		0.84134474606854295, 2.9959503059051097, 1e4}
	slope := []float64{0, -0.011945647204183927, -0.083315470587686298, 0.13250487534383716, 0.5, 0.86749512465616284,
		1.0833154705876863, 1.0119456472041839, 1}
	n := len(gates)
	ones := make([]float64, n)
	for i := range ones {
		ones[i] = 1
	}
	g, one := f64s(gates, 1, n), f64s(ones, 1, n)
	near(t, "f64", evaluate(t, kernel.GeGLU{Erf: true}, g, one)[0].F64(), want, 1e-15)
	got := evaluate(t, kernel.GeGLUGrad{Erf: true}, g, one, one)
	near(t, "gradient of gate", got[0].F64(), slope, 1e-15)
	near(t, "gradient of up", got[1].F64(), want, 1e-15)
	nan := f32s([]float32{float32(math.NaN())}, 1, 1)
	if x := evaluate(t, kernel.GeGLU{Erf: true}, nan, nan)[0].F32()[0]; x == x {
		t.Error("a gate that is no number gives one")
	}
}
