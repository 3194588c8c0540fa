package adapter

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model/weights"
)

// numbered makes a safetensors file of tensors whose numbers count from first.
func numbered(t *testing.T, tensors map[string][]int, first float32) []byte {
	t.Helper()
	var list []weights.Tensor
	for _, name := range sortedKeys(tensors) {
		n := 1
		for _, d := range tensors[name] {
			n *= d
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = first + float32(i)
		}
		x, err := weights.FromFloat32s(name, weights.F32, tensors[name], values)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
	raw, err := weights.Encode(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestNamesBefore452: an adapter of a language model beside images with the names that transformers had before 4.52 is read as
// one with today's, by names and by an expression of the old names.
func TestNamesBefore452(t *testing.T) {
	for _, targets := range []any{
		[]string{"q_proj"}, `language_model\.model\.layers\.\d+\.self_attn\.q_proj`, []string{"language_model.model.layers.0.self_attn.q_proj"},
		`^(?!.*vision).*q_proj`,
	} {
		config, _ := good(t)
		config["target_modules"] = targets
		raw, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		old := "language_model.model.layers.0.self_attn.q_proj"
		s, err := Decode(raw, numbered(t, map[string][]int{peftPrefix + old + suffixA: {2, 3}, peftPrefix + old + suffixB: {4, 2}}, 1))
		if err != nil {
			t.Fatal(err)
		}
		now := "model.language_model.layers.0.self_attn.q_proj"
		params := []Param{{now + suffixA, []int{2, 3}, make([]float32, 6)}, {now + suffixB, []int{4, 2}, make([]float32, 8)}}
		if err := s.Read(params); err != nil || params[0].Data[5] != 6 || params[1].Data[7] != 8 {
			t.Errorf("%v: %v, %v", targets, err, params)
		}
		if !s.Config.Adapts(now) || s.Config.Adapts("model.vision_tower.layers.0.self_attn.q") {
			t.Errorf("%v: adapts %v", targets, s.Config.TargetModules)
		}
	}
}

// TestMLXFolder: mlx-lm multiplies x lora_a lora_b by scale; ranks are the tensors'.
func TestMLXFolder(t *testing.T) {
	config := `{"fine_tune_type": "lora", "model": "org/base", "num_layers": 2, "iters": 100, "lora_parameters": {"rank": 2, "scale": 20.0, "dropout": 0.1}}`
	tensors := map[string][]int{"l.q_proj.lora_a": {3, 2}, "l.q_proj.lora_b": {2, 4}, "l.v_proj.lora_a": {3, 1}, "l.v_proj.lora_b": {1, 4}}
	dir := t.TempDir()
	write(t, dir, ConfigFile, []byte(config))
	write(t, dir, mlxWeightsFile, numbered(t, tensors, 1))
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.Config
	if c.R != 2 || c.Rank("l.q_proj") != 2 || c.Rank("l.v_proj") != 1 || c.Scale("l.q_proj") != 20 || c.Scale("l.v_proj") != 20 || c.Dropout != 0.1 ||
		!slices.Equal(c.TargetModules, Targets{"l.q_proj", "l.v_proj"}) || s.BaseModel != "org/base" {
		t.Errorf("%+v of %s", c, s.BaseModel)
	}
	params := append(goodParams(), Param{"l.v_proj" + suffixA, []int{1, 3}, make([]float32, 3)}, Param{"l.v_proj" + suffixB, []int{4, 1}, make([]float32, 4)})
	if err := s.Read(params); err != nil {
		t.Fatal(err)
	}
	if want := []float32{1, 3, 5, 2, 4, 6}; !slices.Equal(params[0].Data, want) {
		t.Errorf("A is %v, want %v", params[0].Data, want)
	}
	if want := []float32{1, 5, 2, 6, 3, 7, 4, 8}; !slices.Equal(params[1].Data, want) {
		t.Errorf("B is %v, want %v", params[1].Data, want)
	}
	if base, err := BaseModel(dir); err != nil || base != "org/base" {
		t.Errorf("the base is %q, %v", base, err)
	}
}

// TestOthersFolders: what cannot be read is named, with what to do.
func TestOthersFolders(t *testing.T) {
	lora := `{"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 20.0}}`
	for _, c := range []struct {
		name, config string
		files        map[string]map[string][]int
		want         []string
	}{
		{"DoRA of mlx-lm", strings.Replace(lora, "lora", "dora", 1), nil, []string{`fine_tune_type "dora"`, "mlx_lm.fuse"}},
		{"no scale", `{"lora_parameters": {"rank": 2}}`, nil, []string{"hold no scale"}},
		{"no file", lora, nil, []string{"adapters.safetensors"}},
		{"names of PEFT", lora, map[string]map[string][]int{mlxWeightsFile: {peftPrefix + "l.q_proj" + suffixA: {2, 3}}}, []string{"mlx-lm's", "base_model.model.l.q_proj.lora_A.weight"}},
		{"a half", lora, map[string]map[string][]int{mlxWeightsFile: {"l.q_proj.lora_a": {3, 2}}}, []string{"do not multiply"}},
		{"experts", lora, map[string]map[string][]int{mlxWeightsFile: {"l.lora_a": {4, 3, 2}, "l.lora_b": {4, 2, 3}}}, []string{"experts", "mlx_lm.fuse"}},
		{"nothing", lora, map[string]map[string][]int{mlxWeightsFile: {}}, []string{"no tensor"}},
		{"a pickle", `{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}`, map[string]map[string][]int{"adapter_model.bin": {}}, []string{"adapter_model.bin", "pickle", "weights_only=True", "adapter_model.safetensors"}},
		{"another file", `{"r": 2}`, nil, []string{"no peft_type"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, ConfigFile, []byte(c.config))
			for name, tensors := range c.files {
				write(t, dir, name, numbered(t, tensors, 0))
			}
			_, err := Open(dir)
			if err == nil {
				t.Fatal("it is read")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v: it does not say %q", err, want)
				}
			}
		})
	}
}
