package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// TestMarginLoss checks every form: gradients by central differences, float32 against float64.
func TestMarginLoss(t *testing.T) {
	const S = 11
	pairs := []int32{0, 1, 4, 2, -1, -1, 3, 5, 7, 6, 8, 9, -1, 3}
	for form := range kernel.MarginForms {
		for _, alpha := range []float64{0, 0.25} {
			o := kernel.MarginLoss{Form: form, Beta: 0.3, Smoothing: 0.1, Gamma: 0.5, Alpha: alpha, Likelihood: 0.7,
				Grad: true, Scaled: alpha != 0}
			if form == kernel.MarginOdds {
				o.Alpha = 0
			}
			in := []kerneltest.Input{kerneltest.Uniform(-9, -2, S), kerneltest.Uniform(1, 20, S),
				kerneltest.Uniform(-9, -2, S), kerneltest.Uniform(1, 20, S), kerneltest.Ints(pairs, len(pairs)/2, 2),
				kerneltest.Values([]float64{0.2}, 1)}
			if o.Scaled {
				in = append(in, kerneltest.Values([]float64{1, 0, 0}, 3))
			}
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%d, alpha %v", form, alpha), Kernel: o, In: in,
				Bound: 2e-7})
		}
	}
}

// TestMarginLossRefuses checks that Shape names a wrong attribute or input.
func TestMarginLossRefuses(t *testing.T) {
	f := kernel.T(kernel.F32, 4)
	in := []kernel.Type{f, f, f, f, kernel.T(kernel.I32, 2, 2), kernel.T(kernel.F32, 1)}
	if _, err := (kernel.MarginLoss{Beta: 1}).Shape(in); err != nil {
		t.Fatal(err)
	}
	for what, o := range map[string]kernel.MarginLoss{
		"unknown form": {Beta: 1, Form: kernel.MarginForms}, "beta 0": {}, "smoothing of a half": {Beta: 1, Smoothing: 0.5},
	} {
		if _, err := o.Shape(in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	for i := range in {
		bad := append([]kernel.Type(nil), in...)
		bad[i] = kernel.T(kernel.F64, 5, 3)
		if _, err := (kernel.MarginLoss{Beta: 1}).Shape(bad); err == nil {
			t.Errorf("input %d as %v: accepted", i, bad[i])
		}
	}
}
