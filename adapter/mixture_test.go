package adapter

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model/weights"
)

// mixtureOf is a model of two layers with experts, and one with an MLP between them where dense is true, adapted as c says.
func mixtureOf(c Config, dense bool) *Trained {
	t := &Trained{}
	for i := range 3 {
		layer := fmt.Sprintf("model.layers.%d.", i)
		names := []string{"self_attn.q_proj"}
		parts := []string{"gate_proj", "up_proj", "down_proj"}
		switch {
		case i != 1:
			names = append(names, "mlp.gate")
			for e := range 2 {
				for _, part := range parts {
					names = append(names, fmt.Sprintf("mlp.experts.%d.%s", e, part))
				}
			}
		case dense:
			for _, part := range parts {
				names = append(names, "mlp."+part)
			}
		}
		for _, name := range names {
			t.linear(layer + name)
			if c.Adapts(layer + name) {
				t.Layers = append(t.Layers, layer+name)
			}
		}
	}
	return t
}

// TestMixtureForms: adapter_config.json of mixtures of experts, as scripts/mixtures_check.py has PEFT load it under transformers 4.57 and 5.
func TestMixtureForms(t *testing.T) {
	qwen2, qwen3 := Mixture{Stacked: true}, Mixture{Stacked: true, Renamed: true}
	all := Targets{AllLinear}
	c := func(edit func(*Config)) Config {
		c := Config{Shared: Shared{R: 4, Alpha: 8, TargetModules: all}}
		edit(&c)
		return c
	}
	none := func(*Config) {}
	const gateUp, down = `"mlp\\.experts\\.gate_up_proj":`, `"mlp\\.experts\\.down_proj":`
	for name, test := range map[string]struct {
		config                             Config
		mixture                            Mixture
		dense                              bool
		modules, parameters, ranks, alphas string
		notes                              int
	}{
		"qwen3": {config: c(none), mixture: qwen3, modules: `["down_proj","gate","gate_proj","q_proj","up_proj"]`, ranks: `{}`, alphas: `{}`},
		"qwen2": {config: c(none), mixture: qwen2, modules: `["down_proj","gate_proj","q_proj","up_proj"]`,
			parameters: `["mlp.gate.weight","mlp.experts.gate_up_proj","mlp.experts.down_proj"]`, ranks: `{` + gateUp + `8}`, alphas: `{` + gateUp + `16}`},
		"rsLoRA": {config: c(func(c *Config) { c.Own = LoRASettings{UseRSLoRA: true} }), mixture: qwen3, modules: `["down_proj","gate","gate_proj","q_proj","up_proj"]`,
			ranks: `{}`, alphas: fmt.Sprintf(`{%s%v}`, gateUp, 8*math.Sqrt2)},
		"patterns": {config: c(func(c *Config) {
			c.RankPattern = map[string]int{"gate_proj": 2, "up_proj": 2, `experts\.\d\.down_proj`: 3, "gate": 5}
			c.AlphaPattern = map[string]float64{"layers.0.*": 2}
		}), mixture: qwen3, modules: `["down_proj","gate","gate_proj","q_proj","up_proj"]`,
			ranks:  `{` + down + `3,` + gateUp + `4,"mlp\\.gate\\.weight":5,"experts\\.\\d\\.down_proj":3,"gate":5,"gate_proj":2,"up_proj":2}`,
			alphas: `{"model\\.layers\\.0\\.mlp\\.experts\\.gate_up_proj":4,"model\\.layers\\.2\\.mlp\\.experts\\.gate_up_proj":16,"layers.0.*":2}`},
		"dense": {config: c(none), mixture: qwen3, dense: true,
			modules:    `["experts.0.down_proj","experts.0.gate_proj","experts.0.up_proj","experts.1.down_proj","experts.1.gate_proj","experts.1.up_proj","gate","q_proj"]`,
			parameters: `["mlp.down_proj.weight","mlp.gate_proj.weight","mlp.up_proj.weight"]`, ranks: `{}`, alphas: `{}`},
		"dense in qwen2": {config: c(func(c *Config) { c.TargetModules = Targets{"gate_proj", "up_proj", "down_proj"} }), mixture: qwen2, dense: true,
			modules: `["down_proj","gate_proj","up_proj"]`, parameters: `["mlp.experts.gate_up_proj","mlp.experts.down_proj"]`,
			ranks: `{` + gateUp + `8}`, alphas: `{` + gateUp + `16}`},
		"without down": {config: c(func(c *Config) { c.TargetModules = Targets{"gate_proj", "up_proj"} }), mixture: qwen3,
			modules: `["gate_proj","up_proj"]`, parameters: `["mlp.experts.down_proj"]`, ranks: `{}`, alphas: `{}`},
		"one layer": {config: c(func(c *Config) { c.TargetModules = Targets{`.*layers\.2\..*_proj`} }), mixture: qwen2,
			modules: `["model.layers.2.mlp.experts.0.down_proj","model.layers.2.mlp.experts.0.gate_proj","model.layers.2.mlp.experts.0.up_proj",` +
				`"model.layers.2.mlp.experts.1.down_proj","model.layers.2.mlp.experts.1.gate_proj","model.layers.2.mlp.experts.1.up_proj","model.layers.2.self_attn.q_proj"]`,
			parameters: `["model.layers.2.mlp.experts.gate_up_proj","model.layers.2.mlp.experts.down_proj"]`, ranks: `{` + gateUp + `8}`, alphas: `{` + gateUp + `16}`},
		// Under transformers 5 PEFT refuses these.
		"two scales": {config: c(func(c *Config) { c.AlphaPattern = map[string]float64{"up_proj": 3} }), mixture: qwen3,
			modules: `["down_proj","gate","gate_proj","q_proj","up_proj"]`, ranks: `{` + gateUp + `4}`, alphas: `{"up_proj":3}`, notes: 1},
		"gate alone": {config: c(func(c *Config) { c.TargetModules = Targets{"gate_proj"} }), mixture: qwen3,
			modules: `["gate_proj"]`, parameters: `["mlp.experts.down_proj"]`, ranks: `{}`, alphas: `{}`, notes: 1},
		"some experts": {config: c(func(c *Config) { c.TargetModules = Targets{`.*experts\.1\..*`} }), mixture: qwen3,
			modules: `["experts.1.down_proj","experts.1.gate_proj","experts.1.up_proj"]`, ranks: `{}`, alphas: `{}`, notes: 1},
		"dropout": {config: c(func(c *Config) { c.Dropout = 0.1 }), mixture: qwen2, modules: `["down_proj","gate","gate_proj","q_proj","up_proj"]`,
			parameters: `["mlp.experts.gate_up_proj","mlp.experts.down_proj"]`, ranks: `{` + gateUp + `8}`, alphas: `{` + gateUp + `16}`, notes: 1},
		"attention": {config: c(func(c *Config) { c.TargetModules, c.Dropout = Targets{"q_proj"}, 0.1 }), mixture: qwen2, modules: `["q_proj"]`, ranks: `{}`, alphas: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			trained := mixtureOf(test.config, test.dense)
			c, notes := test.config.ForPEFT(trained, test.mixture)
			raw, err := Methods["lora"].PEFT.Format(c, "base", trained.Layers)
			if err != nil {
				t.Fatal(err)
			}
			var keys map[string]json.RawMessage
			if err := json.Unmarshal(raw, &keys); err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]string{"target_modules": test.modules, "target_parameters": test.parameters, "rank_pattern": test.ranks, "alpha_pattern": test.alphas} {
				if got := compact(t, keys[key]); got != want {
					t.Errorf("%s is %s, want %s", key, got, want)
				}
			}
			if len(notes) != test.notes || test.notes > 0 && (!strings.Contains(notes[0], "under transformers 5 PEFT") || !strings.Contains(notes[0], "export --format peft")) {
				t.Errorf("the notes are %q", notes)
			}
			readAgain(t, test.config, raw, trained)
		})
	}
}

// readAgain reads a folder whose tensors are those of trained: the same layers are adapted with the same ranks and scales.
func readAgain(t *testing.T, c Config, config []byte, trained *Trained) {
	t.Helper()
	var list []weights.Tensor
	for _, l := range trained.Layers {
		list = append(list, weights.Tensor{Name: PEFTName(l + suffixA), DType: weights.F32, Shape: []int{1, 1}, Data: make([]byte, 4)})
	}
	model, err := weights.Encode(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Decode(config, model)
	if err != nil {
		t.Fatal(err)
	}
	if s.Config.FusedExperts() && slices.ContainsFunc(trained.Layers, func(l string) bool { return strings.Contains(l, "experts") }) {
		t.Error("read again, experts are parameters")
	}
	for _, l := range trained.Linears() {
		if got, want := s.Config.Adapts(l), slices.Contains(trained.Layers, l); got != want {
			t.Errorf("read again, %s is adapted: %v, want %v", l, got, want)
		}
		if c.Adapts(l) && (s.Config.Rank(l) != c.Rank(l) || s.Config.Scale(l) != c.Scale(l)) {
			t.Errorf("read again, %s has rank %d and scale %g, want %d and %g", l, s.Config.Rank(l), s.Config.Scale(l), c.Rank(l), c.Scale(l))
		}
	}
}

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	if raw == nil {
		return ""
	}
	var v strings.Builder
	e := json.NewEncoder(&v)
	e.SetEscapeHTML(false)
	if err := e.Encode(raw); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(v.String())
}

// TestExpertLayer: only a linear layer of one expert is one.
func TestExpertLayer(t *testing.T) {
	for path, want := range map[string][3]string{
		"model.layers.0.mlp.experts.12.up_proj":        {"model.layers.0.mlp.experts", "12", "up_proj"},
		"model.layers.1.block_sparse_moe.experts.0.w1": {"model.layers.1.block_sparse_moe.experts", "0", "w1"},
		"model.layers.0.mlp.experts.base_layer":        {},
		"model.layers.0.mlp.experts.x.up_proj":         {},
		"model.layers.0.mlp.shared_expert.up_proj":     {},
		"up_proj": {}, "": {}, "0.up_proj": {}, ".0.up_proj": {},
	} {
		module, number, name, ok := ExpertLayer(path)
		if got := [3]string{module, number, name}; got != want || ok != (want[0] != "") {
			t.Errorf("%s: %q, %v", path, got, ok)
		}
	}
}
