package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestScale(t *testing.T) {
	for _, by := range []float64{0.125, -3.7, 12} {
		kerneltest.Run(t,
			kerneltest.Case{Name: "odd", Kernel: kernel.Scale{By: by}, In: []kerneltest.Input{kerneltest.Normal(5, 13)}, Bound: 2e-7},
			kerneltest.Case{Name: "pieces", Kernel: kernel.Scale{By: by}, In: []kerneltest.Input{kerneltest.Normal(70, 576)}, Bound: 2e-7},
		)
	}
}

func TestScaleMeaning(t *testing.T) {
	out := evaluate(t, kernel.Scale{By: -1.5}, f64s([]float64{1, -2, 0, 4}, 2, 2))
	near(t, "y", out[0].F64(), []float64{-1.5, 3, 0, -6}, 0)
}

func TestScaleRefuses(t *testing.T) {
	for _, by := range []float64{math.Inf(1), math.NaN()} {
		if _, err := (kernel.Scale{By: by}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 3)}); err == nil {
			t.Errorf("By %v is accepted", by)
		}
	}
}
