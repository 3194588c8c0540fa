package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// unpairedRows are five rows of eleven sequences, two of them with mismatched sequences, and two places without a row.
var unpairedRows = []int32{0, 1, 1, 4, 2, -1, -1, -1, 0, 3, -1, 1, 7, -1, -1, 8, 9, 1, 10, 5, 0}

// TestUnpairedLoss checks both forms: gradients by central differences, float32 against float64. The mismatched
// sequences are less likely under the policy, so that z is 0 and the loss does not depend on them.
func TestUnpairedLoss(t *testing.T) {
	const S = 11
	for form := range kernel.UnpairedForms {
		for _, scaled := range []bool{false, true} {
			o := kernel.UnpairedLoss{Form: form, Beta: 0.3, Desirable: 1.25, Undesirable: 0.5, Grad: true,
				Scaled: scaled}
			policy := []float64{-3, -9, -9, -4, -6, -9, -2, -7.5, -5, -9, -3}
			reference := []float64{-4, -3, -4, -4.5, -5, -3, -6, -7, -6, -2, -3}
			in := []kerneltest.Input{kerneltest.Values(policy, S), kerneltest.Values(reference, S),
				kerneltest.Ints(unpairedRows, len(unpairedRows)/3, 3), kerneltest.Values([]float64{0.2}, 1)}
			if scaled {
				in = append(in, kerneltest.Values([]float64{1, 0, 0}, 3))
			}
			name := fmt.Sprintf("%s, scaled %v", kernel.UnpairedFormNames[form], scaled)
			kerneltest.Run(t, kerneltest.Case{Name: name, Kernel: o, In: in, Bound: 2e-7})
		}
	}
}

// TestUnpairedLossNumbers checks the loss, the gradient and the sums of two rows by hand. The mismatched log-ratios 3
// and 0 make z 1.5, which is a constant for the gradient.
func TestUnpairedLossNumbers(t *testing.T) {
	rows := i32s([]int32{0, 1, 1, -1, 4, 0, 3, 2, -1})
	rows.Shape = []int{3, 3}
	o := kernel.UnpairedLoss{Beta: 0.5, Desirable: 2, Undesirable: 3, Grad: true}
	got := evaluate(t, o, f64s([]float64{-1, -2, -3, -4, 7}, 5), f64s([]float64{-2, -5, -3, -3, 7}, 5), rows,
		f64s([]float64{0.25}, 1))
	sg := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	slope := func(x float64) float64 { return sg(x) * sg(-x) }
	const z = 1.5
	good, bad := 0.5*(1-z), 0.5*(z - -1)
	want := [][]float64{{0.25 * (2*(1-sg(good)) + 3*(1-sg(bad)))},
		{-0.25 * 2 * 0.5 * slope(good), 0, 0, 0.25 * 3 * 0.5 * slope(bad), 0},
		{0.5}, {-0.5}, {-1}, {-4}, {1}, {1}, {2 * z}}
	for i, w := range want {
		near(t, fmt.Sprintf("output %d", i), got[i].F64(), w, 1e-15)
	}
}

// TestUnpairedLossRefuses checks that Shape names a wrong attribute or input.
func TestUnpairedLossRefuses(t *testing.T) {
	f := kernel.T(kernel.F32, 4)
	in := []kernel.Type{f, f, kernel.T(kernel.I32, 2, 3), kernel.T(kernel.F32, 1)}
	good := kernel.UnpairedLoss{Beta: 1, Desirable: 1, Undesirable: 1}
	if _, err := good.Shape(in); err != nil {
		t.Fatal(err)
	}
	for what, o := range map[string]kernel.UnpairedLoss{
		"unknown form": {Beta: 1, Form: kernel.UnpairedForms}, "beta 0": {},
		"negative weight": {Beta: 1, Desirable: -1}, "infinite weight": {Beta: 1, Undesirable: math.Inf(1)},
	} {
		if _, err := o.Shape(in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	for i := range in {
		bad := append([]kernel.Type(nil), in...)
		bad[i] = kernel.T(kernel.F64, 5, 2)
		if _, err := good.Shape(bad); err == nil {
			t.Errorf("input %d as %v: accepted", i, bad[i])
		}
	}
}
