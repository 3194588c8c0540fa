package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// convChecks returns the short convolutions over packed sequences, their gradients, and their next tokens behind what
// slots hold.
func convChecks() []check {
	n := newNumbers()
	var all []check
	for _, K := range []int{1, 2, 3, 4, 9} {
		for _, C := range []int{256, 333} { // enough numbers of one row for a bound by their spread
			x := func(rows int) checkInput { return n.normal(1, rows, C) }
			for _, cu := range [][]int{{0, 1}, {0, 129}, {2, 2, 9, 10, 65, 65, 126}, {7}} {
				M := cu[len(cu)-1] + 3
				name := fmt.Sprintf("%d taps, [%d,%d], sequences between rows %v", K, M, C, cu)
				all = append(all,
					check{kernel: "causal_conv", name: name, build: one(kernel.CausalConv{}), bounds: []bound{rounded},
						in: []checkInput{x(M), n.normal(1, C, K), integers(cu...)}},
					check{kernel: "causal_conv_grad", name: name, build: one(kernel.CausalConvGrad{}),
						bounds: []bound{rounded},
						in:     []checkInput{x(M), n.normal(1, C, K), integers(cu...), x(M)}},
					check{kernel: "short_conv", name: name, build: one(kernel.ShortConv{}), bounds: []bound{rounded},
						in: []checkInput{n.normal(1, M, 3*C), n.normal(1, C, K), integers(cu...)}},
					check{kernel: "short_conv_grad", name: name, build: one(kernel.ShortConvGrad{}),
						bounds: []bound{rounded},
						in:     []checkInput{n.normal(1, M, 3*C), n.normal(1, C, K), integers(cu...), x(M)}})
			}
			if K == 1 {
				continue // nothing is kept
			}
			for _, s := range []struct{ cuQ, cuK []int }{
				{[]int{0, 1}, []int{200, 207}}, // one token more
				// one that begins, three more, a second
				{[]int{0, 1, 1, 4, 4, 5}, []int{0, 1, 200, 230, 100, 102}},
				// a piece of a prompt, none, a short prompt
				{[]int{0, 70, 70, 70, 70, 79}, []int{100, 180, 0, 5, 200, 209}},
			} {
				all = append(all, check{kernel: "short_conv_cached",
					name:  fmt.Sprintf("%d taps, %d columns, rows %v of tokens %v in slots of 100", K, C, s.cuQ, s.cuK),
					build: one(kernel.ShortConvCached{Tokens: 100}), bounds: []bound{rounded, rounded},
					in: []checkInput{n.normal(1, s.cuQ[len(s.cuQ)-1]+2, 3*C), n.normal(1, C, K), integers(s.cuQ...),
						integers(s.cuK...), n.normal(1, 3, (K-1)*C).overwritten()}})
				all = append(all, check{kernel: "causal_conv_cached",
					name:  fmt.Sprintf("%d taps, %d columns, rows %v of tokens %v in slots of 100", K, C, s.cuQ, s.cuK),
					build: one(kernel.CausalConvCached{Tokens: 100}), bounds: []bound{rounded, exact},
					in: []checkInput{x(s.cuQ[len(s.cuQ)-1] + 2), n.normal(1, C, K), integers(s.cuQ...),
						integers(s.cuK...), n.normal(1, 3, (K-1)*C).overwritten()}})
			}
		}
	}
	return all
}
