package adapter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model/nn"
)

// Parameter is an adapted parameter [Experts,In,Out] of the model, such as model.layers.0.mlp.experts.down_proj.
type Parameter struct {
	Name             string
	Path             string // of what PEFT wraps its module in: the module's, and .base_layer for each wrapper around this one
	Experts, In, Out int
}

// parameterMatches is PEFT's rule for target_parameters: a name is the parameter's or its end.
func (c Config) parameterMatches(name string) bool {
	return slices.ContainsFunc(c.TargetParameters, func(target string) bool {
		return name == target || strings.HasSuffix(name, "."+target)
	})
}

// ParameterWrapper is the nn.Options.WrapParameter of a method, as Wrapper is for layers. PEFT wraps a module once for each of
// its parameters, in their order.
func (m Method) ParameterWrapper(t *Trained, c Config) func(n *nn.Net, names []string, which int, base nn.Experts) nn.Experts {
	return func(n *nn.Net, names []string, which int, base nn.Experts) nn.Experts {
		name := names[which]
		t.parameters = append(t.parameters, name)
		if !c.parameterMatches(name) {
			return base
		}
		p := Parameter{Name: name, Path: name[:strings.LastIndexByte(name, '.')]}
		for _, later := range names[which+1:] {
			if c.parameterMatches(later) {
				p.Path += ".base_layer"
			}
		}
		p.Experts, p.In, p.Out = base.Size()
		switch {
		case m.WrapParameter == nil:
			n.Fail(fmt.Errorf("lora.target_parameters: %s is a parameter of experts, which this adapter does not train", name))
			return base
		case p.Experts == 1:
			n.Fail(fmt.Errorf("lora.target_parameters: %s is of one expert, for which PEFT has no update of the parameter's shape", name))
			return base
		}
		t.Parameters = append(t.Parameters, p)
		first := len(t.Params)
		x := m.WrapParameter(t, c, n, p, base)
		t.rate(m, c, first)
		return x
	}
}

// CheckParameters reports target parameters that match nothing, or what no adapter of a parameter trains here. weights are the
// names of the network's tensors.
func (t *Trained) CheckParameters(c Config, weights []string) error {
	for _, target := range c.TargetParameters {
		one, found := Config{TargetParameters: []string{target}}, false
		for _, name := range weights {
			switch {
			case slices.Contains(t.parameters, name) || !one.parameterMatches(name):
			case t.linears[name]:
				return fmt.Errorf("lora.target_parameters: %s is the weight of a linear layer, for which lora.target_modules: %s trains the same update",
					name, strings.TrimSuffix(name[strings.LastIndexByte(strings.TrimSuffix(name, ".weight"), '.')+1:], ".weight"))
			default:
				return fmt.Errorf("lora.target_parameters: %s matches %s, which is no parameter of experts: %s", target, name, t.hasParameters())
			}
		}
		for _, name := range t.parameters {
			found = found || one.parameterMatches(name)
		}
		if !found {
			return fmt.Errorf("lora.target_parameters: %s matches no parameter of the model: %s", target, t.hasParameters())
		}
	}
	return nil
}

// hasParameters says what target_parameters may name.
func (t *Trained) hasParameters() string {
	if len(t.parameters) == 0 {
		return "its experts' matrices, if it has any, are linear layers, which lora.target_modules names"
	}
	var ends []string
	for _, name := range t.parameters {
		ends = append(ends, ParameterEnd(name))
	}
	slices.Sort(ends)
	return "it has " + strings.Join(slices.Compact(ends), ", ")
}

// ParameterEnd is the end of a parameter's name by which target_parameters means it in all layers: its module's name and its own.
func ParameterEnd(name string) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts[max(0, len(parts)-2):], ".")
}

// wrapLoRAParameter adapts all experts of a parameter. PEFT's A [R*E,In] has an expert's rows one below the other; its B [Out,R*E]
// has column r*E+e for expert e.
func wrapLoRAParameter(t *Trained, c Config, n *nn.Net, p Parameter, base nn.Experts) nn.Experts {
	r := c.Rank(p.Name)
	b := []member{{Param{Name: p.Path + suffixB, Shape: []int{p.Out, r * p.Experts}}, p.Experts}}
	return &loraExperts{n: n, base: base, scale: c.Scale(p.Name),
		a: t.param(n, p.Path+suffixA, p.Experts*r, p.In), b: t.stack(n, p.Path+suffixB, b, p.Experts*p.Out, r)}
}

// mergeLoRAParameter is W_e + s (B_e A_e)ᵀ for every expert, summed in float64 and rounded once.
func mergeLoRAParameter(c Config, p Parameter, own []Param) (Merger, error) {
	a, b, err := pairOf(p.Path, own)
	if err != nil {
		return nil, err
	}
	rank, scale := c.Rank(p.Name), c.Scale(p.Name)
	return func(w []float32, from int) {
		sum := make([]float64, p.Out)
		for ; len(w) >= p.Out; w, from = w[p.Out:], from+1 {
			e, i := from/p.In, from%p.In
			own := w[:p.Out]
			for o, x := range own {
				sum[o] = float64(x)
			}
			for r := range rank {
				s := scale * float64(a.Data[(e*rank+r)*p.In+i])
				for o := range sum {
					sum[o] += float64(s * float64(b.Data[o*rank*p.Experts+r*p.Experts+e]))
				}
			}
			for o, x := range sum {
				own[o] = float32(x)
			}
		}
	}, nil
}
