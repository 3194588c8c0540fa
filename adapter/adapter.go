package adapter

import (
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// Methods are the values of `adapter:` in a run's configuration.
var Methods = map[string]Method{
	"lora":  {Wrap: wrapLoRA},
	"qlora": {Wrap: wrapLoRA, Quantized: true},
}

// Method is a way of training beside frozen weights.
type Method struct {
	// Wrap returns the layer with what is trained beside it.
	Wrap func(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear
	// Quantized says that base weights are stored in few bits.
	Quantized bool
}

// ParamGroup and GradGroup are the state groups of trained tensors and their accumulated gradients: member
// by member at equal offsets.
const (
	ParamGroup = "adapter"
	GradGroup  = "gradients"
)

// Trained collects what an adapter trains while a network is built.
type Trained struct {
	Params []*nn.Value
	Layers []string // paths of the adapted layers
}

// param declares a trained tensor under PEFT's name without its prefix, such as
// "model.layers.0.self_attn.q_proj.lora_A.weight".
func (t *Trained) param(n *nn.Net, name string, shape ...int) *nn.Value {
	p := n.Param(ParamGroup, name, kernel.T(n.Float(), shape...))
	t.Params = append(t.Params, p)
	return p
}

// DropoutCounter is the name of the batch value [seed, step] that dropout masks are made from.
const DropoutCounter = "dropout counter"

// Wrapper is the nn.Options.Wrap of a method: it adapts the layers that the configuration targets.
func (m Method) Wrapper(t *Trained, c Config) func(n *nn.Net, path string, base nn.Linear) nn.Linear {
	return func(n *nn.Net, path string, base nn.Linear) nn.Linear {
		if !c.TargetModules.Match(path) {
			return base
		}
		t.Layers = append(t.Layers, path)
		return m.Wrap(t, c, n, path, base)
	}
}

// CheckTargets reports target names that adapted no layer.
func (t *Trained) CheckTargets(c Config) error {
	if len(t.Layers) == 0 {
		return fmt.Errorf("lora.target_modules: %v matches no linear layer of the model", []string(c.TargetModules))
	}
	if _, ok := c.TargetModules.expression(); ok || c.TargetModules[0] == AllLinear {
		return nil
	}
	var missing []string
	for _, name := range c.TargetModules {
		found := false
		for _, l := range t.Layers {
			found = found || Targets{name}.Match(l)
		}
		if !found {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return fmt.Errorf("lora.target_modules: %s matches no linear layer of the model", strings.Join(missing, ", "))
	}
	return nil
}

// Snapshot copies the trained tensors out of memory as float32.
func (t *Trained) Snapshot(m graph.Store) ([]Param, error) {
	if err := m.Get(t.names()...); err != nil {
		return nil, fmt.Errorf("read the adapter: %w", err)
	}
	params := make([]Param, len(t.Params))
	for i, v := range t.Params {
		x, err := m.Tensor(v.Name)
		if err != nil {
			return nil, fmt.Errorf("read the adapter: %w", err)
		}
		params[i] = Param{Name: v.Name, Shape: v.Type.Shape, Data: make([]float32, x.Elems())}
		if x.DType == kernel.F32 {
			copy(params[i].Data, x.F32())
			continue
		}
		for j, f := range x.F64() {
			params[i].Data[j] = float32(f)
		}
	}
	return params, nil
}

// Restore writes trained tensors into memory, in Snapshot's order.
func (t *Trained) Restore(m graph.Store, params []Param) error {
	if len(params) != len(t.Params) {
		return fmt.Errorf("%d tensors for an adapter of %d", len(params), len(t.Params))
	}
	for i, v := range t.Params {
		x, err := m.Tensor(v.Name)
		if err != nil {
			return fmt.Errorf("write the adapter: %w", err)
		}
		if params[i].Name != v.Name || len(params[i].Data) != x.Elems() {
			return fmt.Errorf("tensor %s of %d elements does not fit %s of %d", params[i].Name, len(params[i].Data), v.Name, x.Elems())
		}
		if x.DType == kernel.F32 {
			copy(x.F32(), params[i].Data)
			continue
		}
		for j, f := range params[i].Data {
			x.F64()[j] = float64(f)
		}
	}
	if err := m.Put(t.names()...); err != nil {
		return fmt.Errorf("write the adapter: %w", err)
	}
	return nil
}

func (t *Trained) names() []string {
	names := make([]string, len(t.Params))
	for i, v := range t.Params {
		names[i] = v.Name
	}
	return names
}
