package nn

import "slices"

// Parameter is one of the parameters in which transformers stores the matrices of a layer's experts.
type Parameter struct {
	Module []string // names of its module's parameters, in order
	Which  int      // index of this parameter in Module
	// Layers lists, for a parameter [E,Out,In] that the checkpoint stores as linear layers, the experts' paths for each
	// part: an expert's rows are those of its layers one after the other. nil = the checkpoint has the parameter
	// itself, [E,In,Out].
	Layers [][]string
}

// Name returns the parameter's name.
func (p Parameter) Name() string { return p.Module[p.Which] }

// The parameters of a module of experts, in transformers' order: gateUpParameter, or upParameter where experts have no
// gates, then downParameter.
const (
	gateUpParameter = "gate_up_proj"
	upParameter     = "up_proj"
	downParameter   = "down_proj"
)

// expertParameter returns the parameter called name of a module, whose first parameter is first.
func expertParameter(module, first, name string) Parameter {
	all := []string{first, downParameter}
	which := slices.Index(all, name)
	for i, own := range all {
		all[i] = module + "." + own
	}
	return Parameter{Module: all, Which: which}
}

// expertsFunc makes Experts of a function, however the matrices are stored.
type expertsFunc struct {
	experts, in, out int
	apply            func(x *Value, at Sorted) *Value
}

func (f expertsFunc) Size() (experts, in, out int) { return f.experts, f.in, f.out }

func (f expertsFunc) Apply(x *Value, at Sorted) *Value { return f.apply(x, at) }

// parameter wraps the experts of a parameter with the run's adapter.
func (n *Net) parameter(p Parameter, parts ...Experts) []Experts {
	if n.WrapParameter == nil {
		return parts
	}
	wrapped := once(n, p.Name()+" (parameter)", func() []Experts { return n.WrapParameter(n, p, parts) })
	return adapted[[]Experts]{parts, wrapped, parts}.of(n)
}

// expertLayers declares the linear layers path.e.name of the current scope's experts for each of names. The run's
// adapter wraps each layer, or all together as the parameter p.
func (n *Net) expertLayers(path string, p Parameter, asParameter bool, experts, in, out int,
	names ...string) []Experts {
	all := make([]Experts, len(names))
	for i, name := range names {
		var paths []string
		n.In(path, func() {
			all[i], paths = n.experts(name, experts, in, out)
			if !asParameter && n.WrapExperts != nil {
				base := all[i]
				wrapped := once(n, name+" (adapted)", func() (x Experts) {
					n.In(name, func() { x = n.WrapExperts(n, paths, base) })
					return x
				})
				all[i] = adapted[Experts]{base, wrapped, base}.of(n)
			}
		})
		p.Layers = append(p.Layers, paths)
	}
	if asParameter {
		all = n.parameter(p, all...)
	}
	return all
}
