package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// policyInputs are four answers, one of them without a token, between prompts and padding. With owned, the old
// log-probabilities are the policy's own.
func policyInputs(o kernel.PolicyLoss, owned bool) []kerneltest.Input {
	const M, S = 23, 5
	labels := slices.Repeat([]int32{kernel.Untrained}, M)
	for _, t := range []int{2, 3, 4, 5, 9, 10, 11, 13, 14, 15, 16, 17} {
		labels[t] = int32(t)
	}
	starts := []int32{0, 7, 12, 13, 18, M}
	old := kerneltest.Uniform(-3, -1, M)
	if owned {
		old = kerneltest.Values(slices.Repeat([]float64{math.NaN()}, M), M)
	}
	var answers []float64
	for _, x := range []float64{0.8, 0.25, 0.5, -1.2, 0.5, 0.25, 3, 1, 1, 0.4, 0.2, 0.5, 0, 1, 1} {
		answers = append(answers, 0.75*x, 0.25*x)
	}
	logp := kerneltest.Uniform(-3, -1, M)
	if o.EntropyBonus != 0 {
		logp = kerneltest.Uniform(-3, -1, 2, M)
	}
	in := []kerneltest.Input{logp, old, kerneltest.Ints(labels, M), kerneltest.Ints(starts, S+1),
		kerneltest.Values(answers, S, 6), kerneltest.Values([]float64{0.3}, 1)}
	if o.EntropyBonus == 0 {
		in = append(in, kerneltest.Uniform(0, 3, M))
	}
	if o.Beta != 0 {
		in = append(in, kerneltest.Uniform(-3, -1, M))
	}
	if o.Scaled {
		in = append(in, kerneltest.Values([]float64{1, 0, 0}, 3))
	}
	return in
}

// policyBase has a value for every attribute that some form reads.
func policyBase() kernel.PolicyLoss {
	return kernel.PolicyLoss{Low: 0.2, High: 0.3, Above: 1, Below: 1.05, K: 2, Lambda: 3, KBelow: 3, LambdaBelow: 2,
		TopEntropy: 1, Grad: true}
}

// TestPolicyLoss checks every form and level: gradients by central differences, float32 against float64. The forms that
// hold a weight constant are checked where it is one.
func TestPolicyLoss(t *testing.T) {
	add := func(name string, o kernel.PolicyLoss) {
		for _, scaled := range []bool{false, true} {
			o.Scaled = scaled
			owned := o.Form == kernel.PolicyCISPO || o.Form == kernel.PolicyVESPO
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%s, scaled %v", name, scaled), Kernel: o,
				In: policyInputs(o, owned), Bound: 4e-7})
		}
	}
	for form := range kernel.PolicyForms {
		for level := range kernel.RatioLevels {
			o := policyBase()
			o.Form, o.Level = form, level
			if form == kernel.PolicyCISPO {
				o.High = 1.4
			}
			add(fmt.Sprintf("form %d, level %d", form, level), o)
			o.Beta = 0.3
			add(fmt.Sprintf("form %d, level %d, divergence", form, level), o)
			if o.WeighKL = true; form == kernel.PolicyCISPO || form == kernel.PolicyVESPO {
				continue // the ratio of the policy itself is one with a gradient, which no difference shows
			}
			add(fmt.Sprintf("form %d, level %d, weighed divergence", form, level), o)
		}
	}
	o := policyBase()
	o.Delta = 1.2
	add("two bounds", o)
	o.TopEntropy = 0.4
	add("top entropies", o)
	o.TopEntropy, o.OffPolicy = 1, 0.01
	add("off-policy answers", o)
	o.OffPolicy, o.EntropyBonus = 0, 0.1
	add("entropy bonus", o)
	o.Grad = false
	add("without a gradient", o)
}

// TestPolicyLossByHand checks one answer of two tokens, whose ratios are 2 and 1/2, against numbers worked out by hand.
func TestPolicyLossByHand(t *testing.T) {
	ln2 := math.Log(2)
	starts, labels := i32s([]int32{0, 3}), i32s([]int32{kernel.Untrained, 7, 8})
	answer := f64s([]float64{-1, 0, 0.5, 0, 0, 0}, 6)
	answer.Shape = []int{1, 6}
	run := func(o kernel.PolicyLoss) []kernel.Tensor {
		return evaluate(t, o, f64s([]float64{0, -1, -2}, 3), f64s([]float64{0, -1 - ln2, -2 + ln2}, 3), labels,
			starts, answer, f64s([]float64{10}, 1), f64s([]float64{9, 0.25, 0.5}, 3))
	}
	o := policyBase()
	out := run(o)
	// The advantage is negative, so the larger loss counts: 2 as it is, and 0.8 for the ratio below the clip.
	near(t, "loss", out[0].F64(), []float64{10 * 0.5 * (2 + 0.8)}, 1e-14)
	near(t, "gradient", out[1].F64(), []float64{0, 10 * 0.5 * 2, 0}, 1e-14)
	for i, want := range []float64{0.75, 0, 1, 0, 0, 2 * ln2} {
		near(t, fmt.Sprintf("sum %d", i), out[2+i].F64(), []float64{want}, 1e-14)
	}
	o.Level = kernel.RatioMean // the mean log-ratio is zero
	out = run(o)
	near(t, "loss of the mean ratio", out[0].F64(), []float64{10 * 0.5 * 2}, 1e-14)
	near(t, "gradient of the mean ratio", out[1].F64(), []float64{0, 5, 5}, 1e-14)
	o.Form, o.High = kernel.PolicyCISPO, 1.5
	o.Level = kernel.RatioToken
	near(t, "capped", run(o)[1].F64(), []float64{0, 10 * 0.5 * 1.5, 10 * 0.5 * 0.5}, 1e-14)
	o.Form, o.TopEntropy = kernel.PolicyClip, 0.5 // the median of the entropies is 0.375
	near(t, "top entropies", run(o)[0].F64(), []float64{10 * 0.5 * 0.8}, 1e-14)
	o.TopEntropy, o.OffPolicy = 1, 0.1
	answer.F64()[0] = -1
	near(t, "not off-policy", run(o)[0].F64(), []float64{14}, 1e-14)
}

// TestPolicyLossRefuses checks that Shape names a wrong attribute or input.
func TestPolicyLossRefuses(t *testing.T) {
	f := func(shape ...int) kernel.Type { return kernel.T(kernel.F64, shape...) }
	i := func(shape ...int) kernel.Type { return kernel.T(kernel.I32, shape...) }
	good := []kernel.Type{f(4), f(4), i(4), i(3), f(2, 6), f(1), f(4)}
	o := policyBase()
	if _, err := o.Shape(good); err != nil {
		t.Fatal(err)
	}
	type change = func(o *kernel.PolicyLoss, in []kernel.Type)
	for name, change := range map[string]change{
		"attribute Form is 9, want 0 to 3":             func(o *kernel.PolicyLoss, _ []kernel.Type) { o.Form = 9 },
		"attribute Level is -1, want 0 to 2":           func(o *kernel.PolicyLoss, _ []kernel.Type) { o.Level = -1 },
		"attribute TopEntropy is 0, want above 0 to 1": func(o *kernel.PolicyLoss, _ []kernel.Type) { o.TopEntropy = 0 },
		"an attribute is NaN, want a finite number": func(o *kernel.PolicyLoss, _ []kernel.Type) {
			o.OffPolicy = math.NaN()
		},
		"attributes Low, High and Delta are -1, 0.3 and 0, want 0 or more": func(
			o *kernel.PolicyLoss, _ []kernel.Type) {
			o.Low = -1
		},
		"attributes Above and Below are 0 and 1.05, want numbers above 0": func(
			o *kernel.PolicyLoss, _ []kernel.Type) {
			o.Form, o.Above = kernel.PolicySAPO, 0
		},
		"input 3 is i32[5] and input 4 is f64[2,6]: there must be one start more than answers": func(
			_ *kernel.PolicyLoss, in []kernel.Type) {
			in[3] = i(5)
		},
	} {
		o, in := policyBase(), slices.Clone(good)
		change(&o, in)
		if _, err := o.Shape(in); err == nil || err.Error() != name {
			t.Errorf("error %v, want %s", err, name)
		}
	}
}
