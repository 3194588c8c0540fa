package export

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/session"
)

// expertPairs are the updates of a parameter of experts as those of the experts' linear layers.
func expertPairs(p adapter.Parameter, byName map[string]adapter.Param, scale float64) (pairs []pair) {
	a, b := byName[p.Path+".lora_A.weight"], byName[p.Path+".lora_B.weight"]
	for part, paths := range p.Layers {
		for e, path := range paths {
			layerA, layerB := p.LayerUpdate(a, b, part, e)
			pairs = append(pairs, pair{path, layerA, layerB, scale})
		}
	}
	return pairs
}

// linearLayers declares the model with every linear layer adapted, experts' too, for the layers' paths.
func linearLayers(s *session.Session) (*adapter.Trained, error) {
	network := s.Net
	network.Adapter = adapter.Config{Shared: adapter.Shared{R: 1, Alpha: 1,
		TargetModules: adapter.Targets{adapter.AllLinear}}}
	_, trained, err := network.Declared()
	return trained, err
}

// fillExperts adds updates of zero where PEFT under transformers 5, which has a layer's experts as two parameters,
// needs one of every expert: of gate, up and down where gate or up of an expert is adapted, of down where down is. all
// are the model's linear layers; the pairs have one rank and scale.
func fillExperts(pairs []pair, all []string) (filled []pair, notes []string) {
	type sizes struct{ width, inner int } // 0 = no expert of the module is adapted
	modules, gated, there := map[string]sizes{}, map[string]bool{}, map[string]bool{}
	for _, p := range pairs {
		there[p.layer] = true
		module, _, name, ok := adapter.ExpertLayer(p.layer)
		switch in, out := p.a.Shape[1], p.b.Shape[0]; {
		case !ok:
		case adapter.IsDown(name):
			modules[module] = sizes{out, in}
		default:
			modules[module], gated[module] = sizes{in, out}, true
		}
	}
	added := 0
	filled = slices.Clone(pairs)
	for _, path := range all {
		module, _, name, ok := adapter.ExpertLayer(path)
		size := modules[module]
		if !ok || there[path] || size.width == 0 || !gated[module] && !adapter.IsDown(name) {
			continue
		}
		in, out := size.width, size.inner
		if adapter.IsDown(name) {
			in, out = out, in
		}
		rank := pairs[0].a.Shape[0]
		filled = append(filled, pair{path, adapter.Param{Name: path + ".lora_A.weight", Shape: []int{rank, in},
			Data: make([]float32, rank*in)},
			adapter.Param{Name: path + ".lora_B.weight", Shape: []int{out, rank}, Data: make([]float32, out*rank)},
			pairs[0].scale})
		added++
	}
	if added > 0 {
		notes = append(notes, fmt.Sprintf("%d layers of experts that the adapter does not adapt have one of zeros: "+
			"PEFT under transformers 5 adapts all experts of a layer alike", added))
	}
	return filled, notes
}
