package selfcheck

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// policyChecks returns the losses of sampled answers: every form and level, with and without each optional term, for
// answers without a token, of one, and of more tokens than a block has threads, between prompts and padding.
func policyChecks() []check {
	n := newNumbers()
	var all []check
	for form := range kernel.PolicyForms {
		for level := range kernel.RatioLevels {
			for variant := range policyVariants {
				o := kernel.PolicyLoss{Form: form, Level: level, Low: 0.2, High: 0.3, Above: 1, Below: 1.05, K: 2,
					Lambda: 3, KBelow: 3, LambdaBelow: 2, TopEntropy: 1, Grad: true}
				if form == kernel.PolicyCISPO {
					o.High = 1.2
				}
				policyVariants[variant](&o)
				in := policyInputs(n, o, [][]int{{1}, {0, 7, 65}, {300, 1, 0, 513, 40}}[variant%3])
				all = append(all, preferenceCheck(fmt.Sprintf("form %d, level %d, variant %d", form, level, variant),
					o, in))
			}
		}
	}
	return all
}

// policyVariants set the optional terms of a loss.
var policyVariants = []func(o *kernel.PolicyLoss){
	func(*kernel.PolicyLoss) {},
	func(o *kernel.PolicyLoss) { o.Beta = 0.1 },
	func(o *kernel.PolicyLoss) { o.Beta, o.WeighKL, o.Scaled = 0.1, true, true },
	func(o *kernel.PolicyLoss) { o.TopEntropy, o.Delta = 0.2, 1.4 },
	func(o *kernel.PolicyLoss) { o.TopEntropy, o.Beta = 0.5, 0.1 },
	func(o *kernel.PolicyLoss) { o.EntropyBonus, o.TopEntropy = 0.1, 0.37 },
	func(o *kernel.PolicyLoss) { o.OffPolicy = 0.001 },
	func(o *kernel.PolicyLoss) { o.EntropyBonus, o.Beta, o.Scaled = 0.1, 0.2, true },
	func(o *kernel.PolicyLoss) { o.Grad = false },
}

// policyInputs returns answers of some lengths, each behind a prompt of three tokens. An answer's log-probabilities
// are near the old ones, so that its ratios lie within and outside of the clip; every seventh old one is unknown.
func policyInputs(n checkNumbers, o kernel.PolicyLoss, lengths []int) []checkInput {
	labels, starts, answers := []int{}, []int{2}, []float64{}
	labels = append(labels, 5, kernel.Untrained) // tokens before the first sequence
	for i, length := range lengths {
		labels = append(labels, slices.Repeat([]int{kernel.Untrained}, 3)...)
		for k := range length {
			labels = append(labels, k)
		}
		starts = append(starts, len(labels))
		advantage := math.Round(64*(n.Float64()-0.5)) / 16
		answers = append(answers, advantage, 1e-9, 1/float64(max(length, 1)), 0, 0.5/float64(i+1), 0)
	}
	labels = append(labels, 5, 6) // padding
	M, S := len(labels), len(lengths)
	numbers := func(shape []int, f func(i int) float64) checkInput {
		x := checkInput{shape: shape}
		for i := range shape[0] * (append(shape, 1)[1]) {
			x.values = append(x.values, float64(float32(f(i))))
		}
		return x
	}
	logp := numbers([]int{M}, func(int) float64 { return -1 - 2*n.Float64() })
	entropies := numbers([]int{M}, func(int) float64 { return 3 * n.Float64() })
	old := numbers([]int{M}, func(i int) float64 {
		if i%7 == 4 {
			return math.NaN()
		}
		return logp.values[i] + 0.4*(n.Float64()-0.5)/float64(1+i%3)
	})
	if o.EntropyBonus != 0 {
		logp = checkInput{shape: []int{2, M}, values: slices.Concat(logp.values, entropies.values)}
	}
	in := []checkInput{logp, old, integers(labels...), integers(starts...),
		numbers([]int{S, 6}, func(i int) float64 { return answers[i] }), given([]int{1}, 0.25)}
	if o.EntropyBonus == 0 {
		in = append(in, entropies)
	}
	if o.Beta != 0 {
		in = append(in, numbers([]int{M}, func(int) float64 { return -1 - 2*n.Float64() }))
	}
	if o.Scaled {
		in = append(in, given([]int{3}, 4, 0, 0))
	}
	return in
}
