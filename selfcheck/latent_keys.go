package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// latentChecks returns the keys of multi-head latent attention, parts of heads put in order, and the
// activation of Apertus.
func latentChecks() []check {
	n := newNumbers()
	var all []check
	for _, M := range checkRows {
		for _, s := range []struct{ of, own, shared int }{{5, 3, 2}, {16, 8, 8}, {256, 128, 64}} {
			k := kernel.LatentKeys{Heads: 3, Of: s.of, Own: s.own}
			name := fmt.Sprintf("3 heads, %d own columns of %d and %d shared ones, %d rows", s.own, s.of, s.shared, M)
			all = append(all, check{kernel: "latent_keys", name: name, build: one(k), bounds: []bound{exact},
				in: []checkInput{n.normal(1, M, 3*s.of), n.normal(1, M, s.shared)}},
				check{kernel: "latent_keys_grad", name: name, build: one(kernel.LatentKeysGrad(k)),
					bounds: []bound{exact, rounded}, in: []checkInput{n.normal(1, M, 3*(s.own+s.shared))}})
		}
	}
	for _, M := range checkRows {
		for _, widths := range [][4]int{{2, 3, 1, 4}, {8, 8, 16, 16}, {5, 5}} {
			for _, back := range []bool{false, true} {
				k := kernel.HeadParts{Heads: 3, Widths: widths, Back: back}
				columns := 3 * (widths[0] + widths[1] + widths[2] + widths[3])
				all = append(all, check{kernel: "head_parts", build: one(k), bounds: []bound{exact},
					name: fmt.Sprintf("3 heads with parts of %v, back %t, %d rows", widths, back, M),
					in:   []checkInput{n.normal(1, M, columns)}})
			}
		}
	}
	for _, C := range checkWidths {
		number := func(x float64) checkInput { return given([]int{1}, x) }
		x := n.normal(2, 65, C)
		in := []checkInput{x, number(0.3), number(-0.4), number(0.5), number(-1e-6)}
		name := fmt.Sprintf("[65,%d]", C)
		all = append(all, check{kernel: "xielu", name: name, build: one(kernel.XIELU{}), bounds: []bound{rounded},
			inPlace: []int{0}, in: in},
			check{kernel: "xielu_grad", name: name, build: one(kernel.XIELUGrad{}), bounds: []bound{rounded},
				inPlace: []int{0}, in: append(in[:5:5], n.normal(1, 65, C))})
	}
	return all
}
