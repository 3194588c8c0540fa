package adapter

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestSelectionEqualsPEFT compares with check_target_module_exists of PEFT 0.18.1, whose answers for the paths stand beside the keys.
func TestSelectionEqualsPEFT(t *testing.T) {
	paths := []string{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.10.self_attn.q_proj", "model.layers.1.self_attn.o_proj",
		"model.layers.1.mlp.experts.0.q_proj", "model.layers.0.mlp.experts.1.q_proj", "lm_head"}
	for _, c := range []struct{ keys, want string }{
		{`"exclude_modules": ["o_proj"]`, "1110110"},
		{`"exclude_modules": ["model.layers.1.self_attn.q_proj", "proj"]`, "1011110"},
		{`"exclude_modules": ".*layers\\.1\\..*"`, "1010010"},
		{`"exclude_modules": "layers\\.1"`, "1111110"},
		{`"layers_to_transform": [1]`, "0101010"},
		{`"layers_to_transform": 0`, "1000100"},
		{`"layers_to_transform": [1, 10], "layers_pattern": "layers"`, "0111100"},
		{`"layers_to_transform": [1], "layers_pattern": ["h", "layers"]`, "0101100"},
		{`"layers_to_transform": [0], "layers_pattern": ["experts"]`, "0000100"},
		{`"layers_to_transform": [], "exclude_modules": []`, "1111110"},
		{`"layers_to_transform": null, "exclude_modules": null, "layers_pattern": null`, "1111110"},
		{`"layers_to_transform": [1], "target_modules": ["model.layers.0.self_attn.q_proj", "o_proj"]`, "1001000"},
		{`"layers_to_transform": [1], "exclude_modules": ["self_attn.q_proj"]`, "0001010"},
	} {
		text := `{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "target_modules": ["q_proj", "o_proj"], ` + c.keys + `}`
		s, err := parseConfig([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", c.keys, err)
			continue
		}
		var got strings.Builder
		var layers []string
		for i, path := range paths {
			if s.Config.Adapts(path) {
				got.WriteByte('1')
				layers = append(layers, path)
			} else {
				got.WriteByte('0')
			}
			if c.want[i] != got.String()[i] {
				t.Errorf("%s: %s is adapted: %c, PEFT %c", c.keys, path, got.String()[i], c.want[i])
			}
		}
		// Written again, the file names the layers that were left.
		raw, err := formatLoRA(s.Config, "base", layers)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseConfig(raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if again.Config.Adapts(path) != s.Config.Adapts(path) {
				t.Errorf("%s: written again, %s is adapted: %v", c.keys, path, again.Config.Adapts(path))
			}
		}
	}
	for _, c := range []struct{ keys, want string }{
		{`"exclude_modules": "(q"`, `exclude_modules: "(q" is no regular expression: error parsing regexp`},
		{`"exclude_modules": 3`, `exclude_modules is 3: no expression and no list of names`},
		{`"layers_to_transform": ["a"]`, `layers_to_transform is ["a"]: no number of a layer and no list of them`},
		{`"layers_to_transform": [1], "layers_pattern": 4`, `layers_pattern is 4: no name and no list of names`},
		{`"layers_to_transform": [1], "layers_pattern": "(h)"`, `layers_pattern: "(h)" is no regular expression: it has groups of its own`},
		{`"layers_to_transform": [1], "target_modules": ".*q_proj"`, `layers_to_transform does not go with target_modules that are one expression`},
	} {
		keys := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(`{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], `+c.keys+`}`), &keys); err != nil {
			t.Fatal(err)
		}
		raw, _ := json.Marshal(keys)
		if _, err := parseConfig(raw); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.keys, err, c.want)
		}
	}
}

// TestSelectionOfARun compares the keys of a run with check_target_module_exists of PEFT 0.21.0, whose answers for the
// paths stand beside them, and reads what they are written as.
func TestSelectionOfARun(t *testing.T) {
	paths := []string{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj",
		"model.layers.10.self_attn.q_proj", "model.layers.1.self_attn.o_proj", "model.layers.1.mlp.experts.0.q_proj",
		"model.layers.0.mlp.experts.1.q_proj", "lm_head"}
	for _, c := range []struct {
		s       LoRASettings
		targets Targets
		want    string
	}{
		{LoRASettings{ExcludeModules: Targets{"o_proj"}}, nil, "1110110"},
		{LoRASettings{ExcludeModules: Targets{"model.layers.1.self_attn.q_proj", "proj"}}, nil, "1011110"},
		{LoRASettings{ExcludeModules: Targets{`.*layers\.1\..*`}}, nil, "1010010"},
		{LoRASettings{ExcludeModules: Targets{`layers\.1`}}, nil, "1111110"},
		{LoRASettings{ExcludeModules: Targets{`(?=.*layers).*(?<!mlp\.experts\.0\.)q_proj`}}, nil, "0001100"},
		{LoRASettings{LayersToTransform: []string{"1"}}, nil, "0101100"},
		{LoRASettings{LayersToTransform: []string{"0"}}, nil, "1000010"},
		{LoRASettings{LayersToTransform: []string{"1", "10"}, LayersPattern: []string{"layers"}}, nil, "0111100"},
		{LoRASettings{LayersToTransform: []string{"1"}, LayersPattern: []string{"h", "layers"}}, nil, "0101100"},
		{LoRASettings{LayersToTransform: []string{"0"}, LayersPattern: []string{"experts"}}, nil, "0000100"},
		{LoRASettings{LayersToTransform: []string{"0"}, LayersPattern: []string{"lay.rs"}}, nil, "1000010"},
		{LoRASettings{LayersToTransform: []string{"1"}}, Targets{"model.layers.0.self_attn.q_proj", "o_proj"}, "1001000"},
		{LoRASettings{LayersToTransform: []string{"1"}, ExcludeModules: Targets{"self_attn.q_proj"}}, nil, "0001100"},
		{LoRASettings{LayersToTransform: []string{"1"}, ModulesToSave: []string{"mlp"}}, nil, "0101000"},
	} {
		config := Default()
		config.Own, config.TargetModules = c.s, Targets{"q_proj", "o_proj"}
		if c.targets != nil {
			config.TargetModules = c.targets
		}
		if problems := config.Validate(); problems != nil {
			t.Errorf("%+v: %v", c.s, problems)
		}
		var layers []string
		for i, path := range paths {
			if config.Adapts(path) != (c.want[i] == '1') {
				t.Errorf("%+v: %s is adapted: %v, PEFT %c", c.s, path, config.Adapts(path), c.want[i])
			}
			if config.Adapts(path) {
				layers = append(layers, path)
			}
		}
		raw, err := formatLoRA(config, "base", layers)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []string{"", `"peft_version": "0.21.0",`} {
			again, err := parseConfig([]byte("{" + version + string(raw[1:])))
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			for _, path := range paths {
				if again.Config.Adapts(path) != config.Adapts(path) {
					t.Errorf("%+v: written again, %s is adapted: %v", c.s, path, again.Config.Adapts(path))
				}
			}
		}
	}
	// The first number of a path counts in files of PEFT 0.21.
	later, err := parseConfig([]byte(`{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"],
		"layers_to_transform": [1], "peft_version": "0.21.0"}`))
	if err != nil || !later.Config.Adapts(paths[4]) || later.Config.Adapts(paths[5]) {
		t.Errorf("a file of PEFT 0.21: %v", err)
	}
}

// TestSelectionRefused: keys that select layers wrongly are refused with their values.
func TestSelectionRefused(t *testing.T) {
	for _, c := range []struct {
		s       LoRASettings
		targets Targets
		want    string
	}{
		{LoRASettings{ExcludeModules: Targets{"(q"}}, nil, `lora.exclude_modules: "(q" is no regular expression: `},
		{LoRASettings{ExcludeModules: Targets{"q_proj", "q_proj"}}, nil,
			`lora.exclude_modules: "q_proj" is no name of a module, or stands there twice`},
		{LoRASettings{LayersToTransform: []string{"-1"}}, nil,
			`lora.layers_to_transform: "-1" is no number of a layer, counted from 0, or stands there twice`},
		{LoRASettings{LayersToTransform: []string{"1"}}, Targets{".*q_proj"},
			`lora.layers_to_transform: it does not go with lora.target_modules that are one regular expression, which ` +
				`PEFT refuses too: write the numbers into the expression ".*q_proj"`},
		{LoRASettings{LayersPattern: []string{"layers"}}, nil,
			"lora.layers_pattern: it says where the numbers of lora.layers_to_transform stand, which is not set"},
		{LoRASettings{LayersToTransform: []string{"1"}, LayersPattern: []string{"(h)"}}, nil,
			`lora.layers_pattern: "(h)" is no regular expression: it has groups of its own`},
	} {
		config := Default()
		config.Own = c.s
		if c.targets != nil {
			config.TargetModules = c.targets
		}
		if problems := config.Validate(); len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), c.want) {
			t.Errorf("got  %v\nwant %s", problems, c.want)
		}
	}
	trained := &Trained{}
	for _, path := range []string{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"} {
		trained.linear(path)
		trained.Layers = append(trained.Layers, path)
	}
	for _, c := range []struct {
		s    LoRASettings
		want string
	}{
		{LoRASettings{ExcludeModules: Targets{"head"}},
			"lora.exclude_modules: [head] matches no linear layer of the model; it has q_proj"},
		{LoRASettings{LayersToTransform: []string{"1", "2"}},
			"lora.layers_to_transform: 2 is the number of no layer that lora.target_modules [q_proj] adapt"},
	} {
		config := Default()
		config.Own, config.TargetModules = c.s, Targets{"q_proj"}
		if err := trained.CheckTargets(config, nil); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// TestTargetsBesideImages: in a folder with a network for images a name would stand for its layers too, so the file has the paths.
func TestTargetsBesideImages(t *testing.T) {
	c := Default()
	c.TargetModules = Targets{AllLinear}
	layers := []string{"model.language_model.layers.0.self_attn.q_proj", "model.language_model.layers.0.mlp.up_proj"}
	raw, err := formatLoRA(c, "base", layers)
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{layers[0]: true, layers[1]: true, "model.vision_tower.encoder.layers.0.self_attn.q_proj": false} {
		if s.Config.Adapts(path) != want {
			t.Errorf("%s: adapted %v, want %v; the file has %v", path, !want, want, s.Config.TargetModules)
		}
	}
}
