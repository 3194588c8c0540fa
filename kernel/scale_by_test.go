package kernel_test

import (
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestScaleBy(t *testing.T) {
	kerneltest.Run(t,
		kerneltest.Case{Name: "odd", Kernel: kernel.ScaleBy{}, In: []kerneltest.Input{kerneltest.Normal(5, 13), kerneltest.Normal(1)}, Bound: 2e-7},
		kerneltest.Case{Name: "pieces", Kernel: kernel.ScaleBy{}, In: []kerneltest.Input{kerneltest.Normal(70, 576), kerneltest.Normal(1)}, Bound: 2e-7},
	)
}

func TestScaleByMeaning(t *testing.T) {
	out := evaluate(t, kernel.ScaleBy{}, f64s([]float64{1, -2, 0, 4}, 2, 2), f64s([]float64{-1.5}, 1))
	near(t, "y", out[0].F64(), []float64{-1.5, 3, 0, -6}, 0)
	if _, err := (kernel.ScaleBy{}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 3), kernel.T(kernel.F32, 3)}); err == nil || !strings.Contains(err.Error(), "want one number") {
		t.Errorf("three numbers: %v", err)
	}
}
