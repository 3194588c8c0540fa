package nn

import "github.com/tierlora/tierlora/kernel"

// XIELU applies the activation xIELU (kernel.XIELU), whose numbers are tensors of the checkpoint: two learnt ones, and
// two that never change.
func XIELU(n *Net, name string, x *Value) *Value {
	in := []*Value{x}
	n.In(name, func() {
		for _, number := range []string{"alpha_p", "alpha_n", "beta", "eps"} {
			shape := []int{1}
			if number == "beta" || number == "eps" {
				shape = nil
			}
			in = append(in, n.add(n.Scope()+"."+number, shape, kernel.T(n.Float(), 1)))
		}
	})
	return n.Apply(kernel.XIELU{}, in...)
}
