package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// headGateChecks returns gates beside each head's query, columns of heads, and a product with one number.
func headGateChecks() []check {
	n := newNumbers()
	var all []check
	for _, M := range checkRows {
		for _, D := range []int{5, 8, 40, 128} {
			const heads = 3
			x := func(width int) checkInput { return n.normal(1, M, heads*width) }
			gates := n.normal(3, M, heads*2*D)
			name := fmt.Sprintf("%d heads of %d, %d rows", heads, D, M)
			all = append(all,
				check{kernel: "head_gate", name: name, build: one(kernel.HeadGate{Heads: heads}),
					bounds: []bound{rounded}, inPlace: []int{0}, in: []checkInput{x(D), gates}},
				check{kernel: "head_gate_grad", name: name, build: one(kernel.HeadGateGrad{Heads: heads}),
					bounds: []bound{rounded, rounded}, in: []checkInput{x(D), gates, x(D)}})
			for _, from := range []int{0, D / 2} {
				k := kernel.HeadColumns{Heads: heads, Of: 2 * D, From: from, Width: D}
				part := fmt.Sprintf("%s, %d columns from %d of %d", name, D, from, 2*D)
				all = append(all, check{kernel: "head_columns", name: part, build: one(k), bounds: []bound{exact},
					in: []checkInput{x(2 * D)}},
					check{kernel: "head_columns_grad", name: part, build: one(kernel.HeadColumnsGrad(k)),
						bounds: []bound{exact}, in: []checkInput{x(D)}})
			}
		}
		for _, C := range checkWidths {
			all = append(all, check{kernel: "scale_by", name: fmt.Sprintf("[%d,%d]", M, C),
				build: one(kernel.ScaleBy{}), bounds: []bound{rounded}, inPlace: []int{0},
				in: []checkInput{n.normal(1, M, C), given([]int{1}, -0.0737)}})
		}
	}
	return all
}
