package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestSoftCap(t *testing.T) {
	for _, size := range [][]int{{3, 7}, {1, 1}, {2, 9000}} {
		kerneltest.Run(t, kerneltest.Case{Name: kernel.T(kernel.F32, size...).String(), Kernel: kernel.SoftCap{Cap: 1.5}, In: []kerneltest.Input{kerneltest.Normal(size...)}, Bound: 2e-7})
	}
	x := []float64{-1e9, -60, -3, -1e-4, 0, 1e-4, 3, 60, 1e9}
	want, single := make([]float64, len(x)), make([]float32, len(x))
	for i := range x {
		want[i], single[i] = 30*math.Tanh(x[i]/30), float32(x[i])
	}
	near(t, "f64", evaluate(t, kernel.SoftCap{Cap: 30}, f64s(x, 1, len(x)))[0].F64(), want, 0)
	near(t, "f32", widen(evaluate(t, kernel.SoftCap{Cap: 30}, f32s(single, 1, len(x)))[0].F32()), want, 2e-6)
	for _, cap := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := (kernel.SoftCap{Cap: cap}).Shape([]kernel.Type{kernel.T(kernel.F32, 1, 1)}); err == nil {
			t.Errorf("Cap %v is accepted", cap)
		}
	}
}
