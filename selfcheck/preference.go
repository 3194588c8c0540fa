package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// preferenceChecks returns the losses of preference pairs. Every form is checked with its gradient, alone and with what
// may change it; sums are few and computed in fp64, so that fp32's rounding of the results is all that may differ.
func preferenceChecks() []check {
	n := newNumbers()
	var all []check
	for _, count := range []int{1, 5, 300} {
		S := 2*count + 1 // a sequence is in no pair
		pairs := make([]int, 0, 2*count+4)
		for k := range count {
			pairs = append(pairs, (7*k+1)%(2*count), (7*k+1)%(2*count)^1)
			if k == 2 {
				pairs = append(pairs, -1, -1, -1, 3) // places without a pair
			}
		}
		P := len(pairs) / 2
		list := integers(pairs...)
		list.shape = []int{P, 2}
		sums := func(low, high float64) checkInput {
			x := checkInput{shape: []int{S}, values: make([]float64, S)}
			for i := range x.values {
				x.values[i] = float64(float32(low + (high-low)*n.Float64()))
			}
			return x
		}
		scale := given([]int{1}, 0.25)
		scaling := given([]int{3}, 4, 0, 0)
		pair := func(name string, o kernel.PairLoss) {
			in := []checkInput{sums(-9, -2), sums(-9, -2), sums(1, 20), list, scale}
			if o.Tail {
				in = append(in, sums(-2, 0), sums(-2, 0))
			}
			if o.Weighted {
				in = append(in, sums(0, 3))
			}
			if o.Scaled {
				in = append(in, scaling)
			}
			all = append(all, preferenceCheck(fmt.Sprintf("%s, %d pairs", name, P), o, in))
		}
		statistics := sums(-9, 9)
		statistics.shape, statistics.values = []int{3, S}, append(statistics.values, append(sums(-9, 9).values,
			sums(0, 9).values...)...)
		all = append(all, preferenceCheck(fmt.Sprintf("%d pairs", P), kernel.AnswerSums{},
			[]checkInput{statistics, sums(1, 20), list}))
		base := kernel.PairLoss{Beta: 0.3, Smoothing: 0.1, Tau: 0.6, Alpha: 0.5, TailWeight: 0.25, Grad: true}
		for form, name := range kernel.PairFormNames {
			o := base
			o.Weights[form] = 1.5
			pair(name, o)
			o.Tail, o.Scaled, o.Weighted = true, true, true
			pair(name+", tail, scaled, weighted", o)
		}
		for divergence, name := range kernel.DivergenceNames {
			o := base
			o.Weights[kernel.PairSigmoid], o.Weights[kernel.PairIPO] = 1, 0.1
			o.Divergence = kernel.Divergence(divergence)
			pair(name, o)
			o.Grad = false
			pair(name+" without a gradient", o)
		}
		for form := range kernel.MarginForms {
			for _, scaled := range []bool{false, true} {
				o := kernel.MarginLoss{Form: form, Beta: 0.7, Smoothing: 0.1, Gamma: 0.5, Likelihood: 0.6, Grad: true,
					Scaled: scaled}
				if scaled {
					o.Alpha = 0.3
				}
				in := []checkInput{sums(-9, -2), sums(1, 20), sums(-30, -2), sums(1, 20), list, scale}
				if scaled {
					in = append(in, scaling)
				}
				all = append(all, preferenceCheck(fmt.Sprintf("form %d, %d pairs, scaled %v", form, P, scaled), o, in))
			}
		}
	}
	return all
}

// preferenceCheck returns a check of a loss whose outputs are all fp32.
func preferenceCheck(name string, k kernel.Kernel, in []checkInput) check {
	types := make([]kernel.Type, len(in))
	for i, x := range in {
		types[i] = kernel.T(kernel.F32, x.shape...)
		if x.typ != 0 {
			types[i].DType = x.typ
		}
	}
	out, err := k.Shape(types)
	if err != nil {
		panic(err) // a broken list of checks
	}
	bounds := make([]bound, len(out))
	for i := range bounds {
		bounds[i] = single
	}
	return check{kernel: k.Name(), name: name, in: in, bounds: bounds,
		build: func(g *graph.Builder, in []*graph.Value) []*graph.Value { return g.ApplyAll(k, in...) }}
}
