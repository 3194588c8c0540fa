package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// classInputs are six rows of L scores, of which two have no target.
func classInputs(o kernel.ClassLoss, L int) []kerneltest.Input {
	const no = kernel.Untrained
	labels := []int32{0, int32(L - 1), no, 0, no, int32(L / 2)}
	S := len(labels)
	in := []kerneltest.Input{kerneltest.Normal(S, L), kerneltest.Ints(labels, S)}
	if o.Form != kernel.ClassSingle {
		in = append(in, kerneltest.Uniform(0, 1, S, L))
	}
	if o.Bias {
		in = append(in, kerneltest.Normal(L))
	}
	in = append(in, kerneltest.Values([]float64{0.25}, 1))
	if o.Scaled {
		in = append(in, kerneltest.Values([]float64{1, 0, 0}, 3))
	}
	return in
}

func TestClassLoss(t *testing.T) {
	for _, form := range []kernel.ClassForm{kernel.ClassSingle, kernel.ClassMulti, kernel.ClassRegression} {
		for _, L := range []int{1, 2, 7} {
			for i := range 8 {
				o := kernel.ClassLoss{Form: form, Bias: i&1 > 0, Grad: i&2 > 0, Scaled: i&4 > 0}
				kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%+v, %d scores", o, L), Kernel: o,
					In: classInputs(o, L), Bound: 2e-7})
			}
		}
	}
}

// TestClassLossMeaning checks losses and counts of rows by hand.
func TestClassLossMeaning(t *testing.T) {
	const no = kernel.Untrained
	scores := []float64{0, 0, 2, -1, 5, 5}
	one := f64s([]float64{1}, 1)
	out := evaluate(t, kernel.ClassLoss{}, f64s(scores, 3, 2), i32s([]int32{1, 0, no}), one)
	each := []float64{math.Ln2, math.Log(1 + math.Exp(-3)), 0}
	near(t, "cross-entropy", out[1].F64(), each, 1e-15)
	near(t, "right and errors", []float64{out[2].F64()[0], out[3].F64()[0]}, []float64{1, 0}, 0)

	targets := f64s([]float64{1, 0, 1, 0, 0, 0}, 3, 2)
	out = evaluate(t, kernel.ClassLoss{Form: kernel.ClassMulti}, f64s(scores, 3, 2), i32s([]int32{0, 0, no}), targets,
		one)
	each = []float64{math.Ln2, (math.Log(1+math.Exp(-2)) + math.Log(1+math.Exp(-1))) / 2, 0}
	near(t, "binary cross-entropy", out[1].F64(), each, 1e-15)
	near(t, "right", out[2].F64(), []float64{1}, 0) // a score of zero does not have the label

	out = evaluate(t, kernel.ClassLoss{Form: kernel.ClassRegression}, f64s(scores, 3, 2), i32s([]int32{0, 0, no}),
		targets,
		f64s([]float64{0.5}, 1))
	near(t, "squared error", []float64{out[0].F64()[0], out[3].F64()[0]}, []float64{0.5 * (0.5 + 1), 0.5 + 1}, 1e-15)
}

// rewardInputs are three pairs of seven sequences, one of which is in none, and a place without a pair.
func rewardInputs(o kernel.RewardLoss) []kerneltest.Input {
	in := []kerneltest.Input{kerneltest.Normal(7, 1), kerneltest.Ints([]int32{0, 1, -1, -1, 5, 2, 3, 4}, 4, 2),
		kerneltest.Uniform(0, 1, 4), kerneltest.Values([]float64{0.5}, 1)}
	if o.Scaled {
		in = append(in, kerneltest.Values([]float64{1, 0, 0}, 3))
	}
	return in
}

func TestRewardLoss(t *testing.T) {
	for i := range 8 {
		o := kernel.RewardLoss{Grad: i&1 > 0, Scaled: i&2 > 0, Centre: 0.05 * float64(i&4)}
		kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%+v", o), Kernel: o, In: rewardInputs(o), Bound: 2e-7})
	}
}

// TestRewardLossMeaning checks the loss and the sums of two pairs by hand.
func TestRewardLossMeaning(t *testing.T) {
	pairs := i32s([]int32{1, 0, 2, 3})
	pairs.Shape = []int{2, 2}
	out := evaluate(t, kernel.RewardLoss{Centre: 0.5}, f64s([]float64{1, 3, 0, 0}, 4, 1), pairs, f64s([]float64{2, 0},
		2),
		f64s([]float64{0.5}, 1))
	near(t, "loss", out[0].F64(), []float64{0.5 * (2*math.Ln2 + 0.5*16)}, 1e-15)
	var sums []float64
	for _, x := range out[1:] {
		sums = append(sums, x.F64()[0])
	}
	near(t, "sums", sums, []float64{2, 1, 2, 0, 3, 1}, 0)
	copy(pairs.I32(), []int32{-1, 0, 2, -1})
	for i, x := range evaluate(t, kernel.RewardLoss{Centre: 0.5}, f64s([]float64{1, 3, 0, 0}, 4, 1), pairs,
		f64s([]float64{2, 0}, 2), f64s([]float64{0.5}, 1)) {
		near(t, fmt.Sprint("result ", i, " without a pair"), x.F64(), []float64{0}, 0)
	}
}

// TestHeadLossesRefuse checks attributes and inputs that have no meaning.
func TestHeadLossesRefuse(t *testing.T) {
	f, labels, one := kernel.T(kernel.F32, 3, 2), kernel.T(kernel.I32, 3), kernel.T(kernel.F32, 1)
	for what, c := range map[string]struct {
		k  kernel.Kernel
		in []kernel.Type
	}{
		"a form that is none": {kernel.ClassLoss{Form: 3}, []kernel.Type{f, labels, f, one}},
		"no scores":           {kernel.ClassLoss{}, []kernel.Type{kernel.T(kernel.F32, 3, 0), labels, one}},
		"two types":           {kernel.ClassLoss{Form: 1}, []kernel.Type{f, labels, kernel.T(kernel.F64, 3, 2), one}},
		"two rewards": {kernel.RewardLoss{}, []kernel.Type{f, kernel.T(kernel.I32, 1, 2), kernel.T(kernel.F32, 1),
			one}},
		"a negative centre": {kernel.RewardLoss{Centre: -1}, []kernel.Type{kernel.T(kernel.F32, 3, 1),
			kernel.T(kernel.I32, 1, 2), one, one}},
	} {
		if _, err := c.k.Shape(c.in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
