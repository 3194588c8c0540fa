package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// pairInputs are five pairs of ten sequences, the last of which is in none, and two places without a pair.
func pairInputs(o kernel.PairLoss) []kerneltest.Input {
	const S = 11
	pairs := []int32{0, 1, 4, 2, -1, -1, 3, 5, 7, 6, 8, 9, -1, 3}
	in := []kerneltest.Input{kerneltest.Uniform(-9, -2, S), kerneltest.Uniform(-9, -2, S), kerneltest.Uniform(1, 20, S),
		kerneltest.Ints(pairs, len(pairs)/2, 2), kerneltest.Values([]float64{0.2}, 1)}
	if o.Tail {
		in = append(in, kerneltest.Uniform(-2, 0, S), kerneltest.Uniform(-2, 0, S))
	}
	if o.Weighted {
		in = append(in, kerneltest.Uniform(0, 3, S))
	}
	if o.Scaled {
		in = append(in, kerneltest.Values([]float64{1, 0, 0}, 3))
	}
	return in
}

// TestPairLoss checks every form and every divergence: gradients by central differences, float32 against float64.
func TestPairLoss(t *testing.T) {
	all := kernel.PairLoss{Beta: 0.3, Smoothing: 0.1, Tau: 0.6, Alpha: 0.5, TailWeight: 0.25, Grad: true}
	add := func(name string, o kernel.PairLoss) {
		for _, scaled := range []bool{false, true} {
			o.Scaled = scaled
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%s, scaled %v", name, scaled), Kernel: o,
				In: pairInputs(o), Bound: 2e-7})
		}
	}
	for form, name := range kernel.PairFormNames {
		o := all
		o.Weights[form] = 1.5
		add(name, o)
		o.Tail = true
		add(name+", tail", o)
	}
	for divergence, name := range kernel.DivergenceNames {
		o := all
		o.Weights[kernel.PairSigmoid], o.Weights[kernel.PairIPO], o.Divergence = 1, 0.1, kernel.Divergence(divergence)
		add(name, o)
	}
	o := all
	o.Grad = false
	for form := range o.Weights {
		o.Weights[form] = 0.5
	}
	o.Tail, o.Weighted = true, true
	add("without a gradient", o)
}

// TestPairLossWeighted checks that the weight of a pair is a constant for the gradient: the loss and the gradient are
// those of the pairs without a weight, each multiplied by it.
func TestPairLossWeighted(t *testing.T) {
	policy, reference, counts := []float64{-4, -6, -3, -8}, []float64{-5, -5, -4, -7}, []float64{2, 4, 3, 5}
	entropies := []float64{1, 2, 0.5, 3}
	o := kernel.PairLoss{Beta: 0.3, Grad: true}
	o.Weights[kernel.PairSigmoid] = 1
	in := func(pairs ...int32) []kernel.Tensor {
		p := i32s(pairs)
		p.Shape = []int{len(pairs) / 2, 2}
		return []kernel.Tensor{f64s(policy, 4), f64s(reference, 4), f64s(counts, 4), p, f64s([]float64{1}, 1)}
	}
	var loss float64
	grad := make([]float64, 4)
	for k := range 2 {
		out := evaluate(t, o, in(int32(2*k), int32(2*k+1))...)
		w := 1.
		for i := 2 * k; i < 2*k+2; i++ {
			w *= math.Exp((policy[i] + entropies[i]) / counts[i])
		}
		loss += w * out[0].F64()[0]
		for i, g := range out[1].F64() {
			grad[i] += w * g
		}
	}
	o.Weighted = true
	out := evaluate(t, o, append(in(0, 1, 2, 3), f64s(entropies, 4))...)
	near(t, "loss", out[0].F64(), []float64{loss}, 1e-15)
	near(t, "gradient", out[1].F64(), grad, 1e-15)
	o.Scaled = true
	scaled := evaluate(t, o, append(in(0, 1, 2, 3), f64s(entropies, 4), f64s([]float64{8, 0, 0}, 3))...)
	near(t, "loss, scaled", scaled[0].F64(), out[0].F64(), 0)
	for i := range grad {
		grad[i] = 8 * out[1].F64()[i]
	}
	near(t, "gradient, scaled", scaled[1].F64(), grad, 0)
}

// TestPairLossNumbers checks the sums beside the loss, which no scale multiplies.
func TestPairLossNumbers(t *testing.T) {
	pairs := i32s([]int32{1, 0, -1, 2, 2, 3})
	pairs.Shape = []int{3, 2}
	o := kernel.PairLoss{Beta: 0.5}
	o.Weights[kernel.PairHinge] = 1
	out := evaluate(t, o, f64s([]float64{-4, -6, -3, -8}, 4), f64s([]float64{-5, -5, -4, -10}, 4),
		f64s([]float64{1, 1, 1, 1}, 4), pairs, f64s([]float64{0.25}, 1))
	// Log-ratios are 1, -1, 1 and 2; margins of rewards -1 and -0.5.
	for i, want := range []float64{0.25 * (2 + 1.5), 0, 1.5, 0, -1.5, -9, -12} {
		near(t, fmt.Sprintf("output %d", i), out[i].F64(), []float64{want}, 1e-15)
	}
}

// TestPairLossRefuses checks that Shape names a wrong attribute or input.
func TestPairLossRefuses(t *testing.T) {
	good := kernel.PairLoss{Beta: 0.1}
	good.Weights[kernel.PairSigmoid] = 1
	with := func(change func(*kernel.PairLoss)) kernel.PairLoss {
		o := good
		change(&o)
		return o
	}
	f, pairs := kernel.T(kernel.F32, 4), kernel.T(kernel.I32, 2, 2)
	in := []kernel.Type{f, f, f, pairs, kernel.T(kernel.F32, 1)}
	if _, err := good.Shape(in); err != nil {
		t.Fatal(err)
	}
	for what, o := range map[string]kernel.PairLoss{
		"no form":                    {Beta: 0.1},
		"beta 0":                     with(func(o *kernel.PairLoss) { o.Beta = 0 }),
		"weight not a number":        with(func(o *kernel.PairLoss) { o.Weights[kernel.PairHinge] = math.NaN() }),
		"smoothing of a half":        with(func(o *kernel.PairLoss) { o.Smoothing = 0.5 }),
		"exo_pair without smoothing": with(func(o *kernel.PairLoss) { o.Weights[kernel.PairEXO] = 1 }),
		"discopop without tau":       with(func(o *kernel.PairLoss) { o.Weights[kernel.PairDiscoPOP] = 1 }),
		"unknown divergence":         with(func(o *kernel.PairLoss) { o.Divergence = kernel.Divergences }),
		"alpha 1": with(func(o *kernel.PairLoss) {
			o.Divergence, o.Alpha = kernel.AlphaDivergence, 1
		}),
		"tail without inputs":        with(func(o *kernel.PairLoss) { o.Tail = true }),
		"weight of the tail above 1": with(func(o *kernel.PairLoss) { o.TailWeight = 2 }),
	} {
		types := in
		if what == "weight of the tail above 1" {
			o.Tail, types = true, append(append([]kernel.Type(nil), in...), f, f)
		}
		if _, err := o.Shape(types); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	for i := range in {
		bad := append([]kernel.Type(nil), in...)
		bad[i] = kernel.T(kernel.F64, 5, 3)
		if _, err := good.Shape(bad); err == nil {
			t.Errorf("input %d as %v: accepted", i, bad[i])
		}
	}
}

// TestPairLossOfNaN: a log-probability that is no number gives a loss that is none, in the forms that sort the pairs
// too.
func TestPairLossOfNaN(t *testing.T) {
	nan := math.NaN()
	for form, name := range kernel.PairFormNames {
		o := kernel.PairLoss{Beta: 0.3, Smoothing: 0.1, Tau: 0.6, Grad: true}
		o.Weights[form] = 1
		for at := range 4 {
			policy := []float64{-3, -4, -5, -6}
			policy[at] = nan
			out := evaluate(t, o, f64s(policy, 4), f64s([]float64{-3, -4, -4, -7}, 4), f64s([]float64{3, 4, 5, 6}, 4),
				kernel.NewTensor(kernel.T(kernel.I32, 2, 2), i32s([]int32{0, 1, 2, 3}).Bytes()), f64s([]float64{1}, 1))
			if loss := out[0].F64()[0]; !math.IsNaN(loss) && (form != int(kernel.PairSFT) || at%2 == 0) {
				t.Errorf("%s: the loss is %v with a NaN at %d", name, loss, at)
			}
		}
	}
}

// TestDiscoPOPFarAway: far from the reference the mixture's second part vanishes, and nothing becomes NaN.
func TestDiscoPOPFarAway(t *testing.T) {
	o := kernel.PairLoss{Beta: 1, Tau: 0.05, Grad: true}
	o.Weights[kernel.PairDiscoPOP] = 1
	out := evaluate(t, o, f64s([]float64{-1000, -1}, 2), f64s([]float64{-1, -1}, 2), f64s([]float64{3, 4}, 2),
		kernel.NewTensor(kernel.T(kernel.I32, 1, 2), i32s([]int32{0, 1}).Bytes()), f64s([]float64{1}, 1))
	near(t, "loss", out[0].F64(), []float64{999}, 1e-12)
	near(t, "gradient", out[1].F64(), []float64{-1, 1}, 1e-12)
}
