package kernel_test

import (
	"fmt"
	"math"
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

// TestOddsOfCertainAnswers checks that the loss of the odds ratio stays finite for an answer whose average
// log-probability is 0, or above it by rounding, where the logarithm of the odds is infinite.
func TestOddsOfCertainAnswers(t *testing.T) {
	const beta = 0.5
	o := kernel.MarginLoss{Form: kernel.MarginOdds, Beta: beta, Grad: true}
	evaluated := func(chosen, rejected float64) (loss float64, gradient []float64) {
		pairs := kernel.NewTensor(kernel.T(kernel.I32, 1, 2), i32s([]int32{0, 1}).Bytes())
		one := f64s([]float64{1}, 1)
		out := evaluate(t, o, f64s([]float64{chosen, rejected}, 2), f64s([]float64{4, 4}, 2), f64s([]float64{0, 0}, 2),
			f64s([]float64{0, 0}, 2), pairs, one)
		return out[0].F64()[0], out[1].F64()
	}
	const certain = -1e-7 * 4 // the sum of 4 tokens at which the odds stop to grow
	for _, sum := range []float64{0, 1e-9} {
		for side := range 2 {
			sums := [2]float64{-6, -6}
			sums[side] = sum
			loss, gradient := evaluated(sums[0], sums[1])
			sums[side] = certain
			wantLoss, wantGradient := evaluated(sums[0], sums[1])
			near(t, fmt.Sprintf("loss, sum %v on side %d", sum, side), []float64{loss}, []float64{wantLoss}, 2e-7)
			near(t, fmt.Sprintf("gradient, sum %v on side %d", sum, side), gradient, wantGradient, 2e-7)
		}
	}
	if loss, _ := evaluated(0, 0); math.Abs(loss-beta*math.Ln2) > 1e-12 {
		t.Errorf("the loss of two certain answers is %v, want beta log 2", loss)
	}
	if loss, gradient := evaluated(math.NaN(), -6); !math.IsNaN(loss) || !math.IsNaN(gradient[0]) {
		t.Errorf("the loss is %v and its gradient %v for a log-probability that is no number", loss, gradient)
	}
	// An average of -50 has odds of 2e-22, of which 1 - exp(-50) keeps no digit.
	if _, gradient := evaluated(-200, -200); math.Abs(gradient[0]+beta/2/4) > 1e-12 {
		t.Errorf("the gradient is %v far below 0, want %v", gradient[0], -beta/2/4)
	}
}
