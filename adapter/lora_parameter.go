package adapter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model/nn"
)

// Parameter is an adapted parameter of the model, such as model.layers.0.mlp.experts.down_proj.
type Parameter struct {
	Name             string
	Path             string // of what PEFT wraps its module in: the module's, and .base_layer for each wrapper around this one
	Experts, In, Out int
	// Layers are, of a parameter [Experts,Out,In] that the checkpoint has as linear layers, the experts' paths, part by part; nil = the
	// checkpoint has the parameter, [Experts,In,Out].
	Layers [][]string
}

// weightSuffix ends the name of a linear layer's or router's weight as a parameter.
const weightSuffix = ".weight"

// FusedExperts tells whether experts and routers are parameters to the configuration, as in transformers 5, and no linear layers.
func (c Config) FusedExperts() bool { return len(c.TargetParameters) > 0 && !c.expertLayers }

// parameterMatches is PEFT's rule for target_parameters: a name is the parameter's or its end. A router's name may be the
// checkpoint's; the parameters of experts have the names of transformers 5, which keeps Granite's block_sparse_moe.
func (c Config) parameterMatches(name string) bool {
	if len(c.TargetParameters) == 0 {
		return false
	}
	if strings.HasSuffix(name, weightSuffix) {
		name = nameIn5(name)
	}
	return slices.ContainsFunc(c.TargetParameters, func(target string) bool {
		return name == target || strings.HasSuffix(name, "."+target)
	})
}

// ParameterWrapper is the nn.Options.WrapParameter of a method, as Wrapper is for layers. PEFT wraps a module once for each of
// its parameters, in their order.
func (m Method) ParameterWrapper(t *Trained, c Config) func(n *nn.Net, of nn.Parameter, parts []nn.Experts) []nn.Experts {
	return func(n *nn.Net, of nn.Parameter, parts []nn.Experts) []nn.Experts {
		name := of.Name()
		t.parameters = append(t.parameters, name)
		if !c.parameterMatches(name) {
			return parts
		}
		p := Parameter{Name: name, Path: name[:strings.LastIndexByte(name, '.')], Layers: of.Layers}
		for _, later := range of.Module[of.Which+1:] {
			if c.parameterMatches(later) {
				p.Path += ".base_layer"
			}
		}
		for _, part := range parts {
			experts, in, out := part.Size()
			p.Experts, p.In, p.Out = experts, in, p.Out+out
		}
		switch {
		case m.WrapParameter == nil:
			n.Fail(fmt.Errorf("lora.target_parameters: %s is a parameter of experts, which this adapter does not train", name))
			return parts
		case p.Experts == 1 && p.Layers == nil:
			n.Fail(fmt.Errorf("lora.target_parameters: %s is of one expert, for which PEFT has no update of the parameter's shape", name))
			return parts
		}
		t.Parameters = append(t.Parameters, p)
		for _, paths := range of.Layers {
			if t.covered == nil {
				t.covered = map[string]bool{}
			}
			t.covered[paths[0][strings.LastIndexByte(paths[0], '.')+1:]] = true
		}
		first := len(t.Params)
		wrapped := m.WrapParameter(t, c, n, p, parts)
		t.rate(m, c, first)
		return wrapped
	}
}

// CheckParameters reports target parameters that match nothing, or what no adapter of a parameter trains here: parameters of experts
// are trained, and the weights of routers and of linear layers. weights are the names of the network's tensors.
func (t *Trained) CheckParameters(c Config, weights []string) error {
	for _, target := range c.TargetParameters {
		one, found := Config{Shared: Shared{TargetParameters: []string{target}}}, false
		for _, name := range weights {
			switch {
			case slices.Contains(t.parameters, name) || !one.parameterMatches(name):
			case t.linears[name] || t.routers[name]:
				found = true
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

// coversAll tells whether adapted parameters have all layers of these names.
func (t *Trained) coversAll(names Targets) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !t.covered[name] })
}

// hasParameters says what target_parameters may name.
func (t *Trained) hasParameters() string {
	if len(t.parameters) == 0 {
		return "it has no experts; lora.target_modules names its linear layers"
	}
	var ends []string
	for _, name := range slices.Concat(t.parameters, sortedKeys(t.routers)) {
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

// wrapLoRAParameter adapts all experts of a parameter, whose parts have A in common. PEFT's A [R*E,In] has an expert's rows one
// below the other; its B [Out,R*E] has column r*E+e for expert e. Here each part has a stack of its rows of B.
func wrapLoRAParameter(t *Trained, c Config, n *nn.Net, p Parameter, parts []nn.Experts) []nn.Experts {
	r, scale := c.Rank(p.Name), c.Scale(p.Name)
	a := t.param(n, p.Path+suffixA, p.Experts*r, p.In)
	wrapped, from := make([]nn.Experts, len(parts)), 0
	for i, part := range parts {
		_, _, out := part.Size()
		b := []member{{Param{Name: p.Path + suffixB, Shape: []int{p.Out, r * p.Experts}}, p.Experts, from, out}}
		name := p.Path + suffixB
		if len(parts) > 1 { // no tensor of PEFT's: the part's name is in it
			layer := p.Layers[i][0]
			name = p.Path + layer[strings.LastIndexByte(layer, '.'):] + suffixB
		}
		wrapped[i] = &loraExperts{n: n, base: part, scale: scale, a: a, b: t.stack(n, name, b, p.Experts*out, r)}
		from += out
	}
	return wrapped
}

// mergeLoRAParameter is W_e + s (B_e A_e)ᵀ for every expert of a parameter [E,In,Out], or of each of its layers [Out,In] the rows of
// W_e + s B_e A_e that it has, summed in float64 and rounded once.
func mergeLoRAParameter(c Config, p Parameter, own []Param) (map[string]Merger, error) {
	a, b, err := pairOf(p.Path, own)
	if err != nil {
		return nil, err
	}
	rank, scale := c.Rank(p.Name), c.Scale(p.Name)
	mergers, first := map[string]Merger{}, 0
	for _, paths := range p.Layers {
		for e, path := range paths {
			mergers[path] = mergeLayerOfParameter(p, a, b, rank, scale, e, first)
		}
		first += p.Out / len(p.Layers)
	}
	if p.Layers != nil {
		return mergers, nil
	}
	mergers[p.Name] = func(w []float32, from int) {
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
	}
	return mergers, nil
}

// mergeLayerOfParameter is the update of an expert's layer whose rows are those of the parameter from first on.
func mergeLayerOfParameter(p Parameter, a, b Param, rank int, scale float64, e, first int) Merger {
	return func(w []float32, from int) {
		sum := make([]float64, p.In)
		for ; len(w) >= p.In; w, from = w[p.In:], from+1 {
			for i, x := range w[:p.In] {
				sum[i] = float64(x)
			}
			for r := range rank {
				s := scale * float64(b.Data[((first+from)*rank+r)*p.Experts+e])
				for i, x := range a.Data[(e*rank+r)*p.In:][:p.In] {
					sum[i] += float64(s * float64(x))
				}
			}
			for i, x := range sum {
				w[i] = float32(x)
			}
		}
	}
}

// LayerUpdate returns A [R,In] and B [Rows,R] of one expert's linear layer of a parameter that has Layers, under the layer's name. a and b
// are the parameter's; part is the layer's place among those that the parameter has of an expert. Both updates are the same product.
func (p Parameter) LayerUpdate(a, b Param, part, expert int) (layerA, layerB Param) {
	path, rank, rows := p.Layers[part][expert], a.Shape[0]/p.Experts, p.Out/len(p.Layers)
	layerA = Param{Name: path + suffixA, Shape: []int{rank, p.In}, Data: a.Data[expert*rank*p.In:][:rank*p.In]}
	layerB = Param{Name: path + suffixB, Shape: []int{rows, rank}, Data: make([]float32, rows*rank)}
	for o := range rows {
		for r := range rank {
			layerB.Data[o*rank+r] = b.Data[((part*rows+o)*rank+r)*p.Experts+expert]
		}
	}
	return layerA, layerB
}
