package nn

import "slices"

// fusedParameters are the parameters [E,In,Out] of FusedMoE, in the order in which transformers' module has them.
var fusedParameters = []string{"experts.gate_up_proj", "experts.down_proj"}

// expertsFunc is Experts by a function, however the matrices are stored.
type expertsFunc struct {
	experts, in, out int
	apply            func(x, starts *Value) *Value
}

func (f expertsFunc) Size() (experts, in, out int) { return f.experts, f.in, f.out }

func (f expertsFunc) Apply(x, starts *Value) *Value { return f.apply(x, starts) }

// parameter is the experts of a parameter of the current scope, wrapped by the run's adapter. all are the parameters of its
// module.
func (n *Net) parameter(all []string, name string, base Experts) Experts {
	if n.wrapParameter == nil {
		return base
	}
	names := make([]string, len(all))
	for i, other := range all {
		names[i] = n.Scope() + "." + other
	}
	return n.wrapParameter(n, names, slices.Index(all, name), base)
}
