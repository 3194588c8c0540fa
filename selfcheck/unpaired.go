package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// unpairedChecks returns the losses of labelled answers. Each form is checked with its gradient and without, for few
// rows and for more rows than a block has threads, with a divergence estimate above 0 and one that is clamped to 0.
func unpairedChecks() []check {
	n := newNumbers()
	var all []check
	for _, count := range []int{1, 5, 300} {
		S := 2*count + 1 // a sequence is in no row
		rows := []int{-1, -1, 1}
		for k := range count {
			own, label, mismatched := 2*((7*k+1)%count), 1-2*(k%3/2), -1
			if k%4 != 3 {
				mismatched = own + 1
			}
			rows = append(rows, own, mismatched, label)
		}
		rows = append(rows, 2*count, 0, 0)
		R := len(rows) / 3
		list := integers(rows...)
		list.shape = []int{R, 3}
		sums := func(low, high float64) checkInput {
			x := checkInput{shape: []int{S}, values: make([]float64, S)}
			for i := range x.values {
				x.values[i] = float64(float32(low + (high-low)*n.Float64()))
			}
			return x
		}
		for form, name := range kernel.UnpairedFormNames {
			for variant := range 4 {
				o := kernel.UnpairedLoss{Form: kernel.UnpairedForm(form), Beta: 0.3, Desirable: 1.5, Undesirable: 0.75,
					Grad: variant != 3, Scaled: variant == 2}
				policy, reference := sums(-9, -2), sums(-12, -3)
				if variant == 1 {
					policy, reference = reference, policy // less likely than under the reference
				}
				in := []checkInput{policy, reference, list, given([]int{1}, 0.25)}
				if o.Scaled {
					in = append(in, given([]int{3}, 4, 0, 0))
				}
				all = append(all, preferenceCheck(fmt.Sprintf("%s, %d rows, variant %d", name, R, variant), o, in))
			}
		}
	}
	return all
}
