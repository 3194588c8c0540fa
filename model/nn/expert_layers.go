package nn

import (
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/kernel"
)

// biasedExperts multiplies sorted rows by the linear layers path.e.name of the current scope, where path.name is own,
// and adds their biases.
func (n *Net) biasedExperts(own string, experts, in, out int, x *Value, at Sorted) (y *Value) {
	path, name, _ := strings.Cut(own, ".")
	n.In(path, func() {
		layers, paths := n.experts(name, experts, in, out)
		member, stacked := newStack(dense{host: true}, experts), fmt.Sprintf("%s.%s.bias", n.Scope(), name)
		for e, path := range paths {
			bias := path + ".bias"
			n.frozen(bias, "in a stack of experts")
			n.declare(Weight{Name: bias, Shape: []int{out}, Into: []string{stacked}, storage: member(e)})
		}
		y = n.Apply(kernel.ExpertBias{Experts: experts}, layers.Apply(x, at),
			n.Frozen(stacked, kernel.T(n.Float(), experts*out)), at.Starts)
	})
	return y
}
