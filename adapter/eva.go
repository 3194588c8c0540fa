package adapter

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/model/nn"
)

// startEVA starts from the directions in which a layer's inputs vary most: the rows of A are the leading principal
// components of the inputs, and B stays zero (Paischer et al. 2024).
func startEVA(_ Config, f Fresh, a, _ Param, _ int) error {
	found, err := f.inputs.of(f.Layer)
	if err != nil {
		return err
	}
	rank, in := a.Shape[0], a.Shape[1]
	for k, v := range found.vectors[:min(rank, len(found.vectors))] {
		for i, x := range v {
			a.Data[k*in+i] = float32(x)
		}
	}
	return nil
}

// ReadsInputs reports whether the first numbers come of the inputs of the adapted layers, which UseInputs gives.
func (s *Start) ReadsInputs() bool {
	if s == nil {
		return false
	}
	way, _, err := startOf(s.config.lora().InitLoRAWeights)
	return err == nil && way.from == startInputs
}

// Inputs returns what learns the inputs of the adapted layers. Nothing is learned of them yet.
func (s *Start) Inputs() *Inputs { return &Inputs{seed: s.seed, layers: map[string]*layerInput{}} }

// UseInputs makes Fill take what was learned of the inputs.
func (s *Start) UseInputs(in *Inputs) { s.inputs = in }

// WithoutInputs returns the start of the same adapter that looks at no inputs: A is uniform and B zero.
func (s *Start) WithoutInputs() *Start {
	own := s.config.lora()
	own.InitLoRAWeights = ""
	c := s.config
	c.Own = own
	return NewStart(s.method, c, s.seed)
}

// Inputs learns in which directions the inputs of adapted layers vary most, batch by batch. Layers that read one value,
// such as q, k and v, are learned once.
type Inputs struct {
	seed   uint64
	groups []*layerInput // in the order of the network
	layers map[string]*layerInput
}

// layerInput is the input of some layers.
type layerInput struct {
	value *nn.Value
	first string // the first layer that reads it
	components
}

// Config is the configuration of the network whose layers are watched: the base model's, in which c selects the layers.
func (in *Inputs) Config(c Config) Config {
	own := c.lora()
	own.TrainableTokenIndices, own.ModulesToSave = nil, nil
	c.Own, c.Dropout = own, 0
	return c
}

// Method is the method of the network whose layers are watched. It leaves every layer as it is.
func (in *Inputs) Method() Method {
	return Method{
		Wrap: func(_ *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear {
			return &watched{base, in, n, path, c.Rank(path)}
		},
		WrapExperts: func(_ *Trained, c Config, n *nn.Net, paths []string, adapted []bool, base nn.Experts) nn.Experts {
			n.Fail(fmt.Errorf("%s: eva starts from the inputs of a linear layer, and %s is one of a mixture's "+
				"experts: leave experts out of %s, or the key", c.Key("init_lora_weights"),
				paths[slices.Index(adapted, true)], c.Key("target_modules")))
			return base
		},
	}
}

// watched is a linear layer whose input is learned.
type watched struct {
	nn.Linear
	in   *Inputs
	n    *nn.Net
	path string
	rank int
}

// Apply notes the layer's input.
func (w *watched) Apply(x *nn.Value) *nn.Value {
	if w.in.layers[w.path] != nil {
		w.n.Fail(fmt.Errorf("eva: %s computes with two inputs in one pass: leave it out of lora.target_modules, or "+
			"lora.init_lora_weights", w.path))
		return w.Linear.Apply(x)
	}
	at := slices.IndexFunc(w.in.groups, func(g *layerInput) bool { return g.value == x })
	if at < 0 {
		at = len(w.in.groups)
		w.in.groups = append(w.in.groups, &layerInput{value: x, first: w.path})
	}
	g := w.in.groups[at]
	g.rank = max(g.rank, w.rank)
	w.in.layers[w.path] = g
	return w.Linear.Apply(x)
}

// Values are the inputs [M,In] of a batch, each once.
func (in *Inputs) Values() []*nn.Value {
	all := make([]*nn.Value, len(in.groups))
	for i, g := range in.groups {
		all[i] = g.value
	}
	return all
}

// LargestRank is the largest rank of the layers.
func (in *Inputs) LargestRank() (r int) {
	for _, g := range in.groups {
		r = max(r, g.rank)
	}
	return r
}

// Learn takes a batch's rows [n,In] of Values()[i] in, unless the directions of that value have settled. Calls for
// different values may run at the same time.
func (in *Inputs) Learn(i int, rows []float32, n int) error {
	g, width := in.groups[i], len(rows)/n
	if g.settled {
		return nil
	}
	if g.rank > width {
		return fmt.Errorf("lora.init_lora_weights: eva of rank %d does not fit %s, which has %d inputs: lower lora.r, or "+
			"give the layer a rank in lora.rank_pattern", g.rank, g.first, width)
	}
	if err := g.add(matrix{n, width, rows}, normalFrom(Fresh{seed: in.seed}.Uniform(g.first))); err != nil {
		return fmt.Errorf("decompose the inputs of %s: %w", g.first, err)
	}
	return nil
}

// Settled counts the layers whose directions the last batch has not changed any more.
func (in *Inputs) Settled() (settled, of int) {
	for _, g := range in.layers {
		of++
		if g.settled {
			settled++
		}
	}
	return settled, of
}

// of returns what was learned of a layer's inputs.
func (in *Inputs) of(layer string) (*components, error) {
	if in == nil || in.layers[layer] == nil || in.layers[layer].seen == 0 {
		return nil, fmt.Errorf("lora.init_lora_weights: eva knows no inputs of %s", layer)
	}
	return &in.layers[layer].components, nil
}
