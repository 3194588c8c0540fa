package adapter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
)

// paramsOf are the tensors of an adapter file by our names, in its order, without numbers.
func paramsOf(t testing.TB, dir string) []Param {
	t.Helper()
	f, err := weights.Open(filepath.Join(dir, WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var params []Param
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		params = append(params, Param{Name: strings.TrimPrefix(name, peftPrefix), Shape: x.Shape, Data: make([]float32, x.Len())})
	}
	return params
}

func layersOf(params []Param) []string {
	var layers []string
	for _, p := range params {
		if l, ok := strings.CutSuffix(p.Name, suffixA); ok {
			layers = append(layers, l)
		}
	}
	return layers
}

// TestRoundTrip reads adapters that PEFT wrote, writes them, and reads them again.
func TestRoundTrip(t *testing.T) {
	for _, name := range []string{"train/init", "lora_grad/lora", "lora_grad/rslora", "lora_grad/lora_qv", "families/qwen2.lora", "families/mistral.lora"} {
		t.Run(name, func(t *testing.T) {
			dir := golden.Path(t, name)
			saved, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer saved.Close()
			params := paramsOf(t, dir)
			if err := saved.Read(params); err != nil {
				t.Fatal(err)
			}
			files, err := saved.Method.Encode(saved.Config, saved.BaseModel, layersOf(params), params)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := saved.Method.Encode(saved.Config, saved.BaseModel, layersOf(params), params); err != nil || !bytes.Equal(files[WeightsFile], again[WeightsFile]) || !bytes.Equal(files[ConfigFile], again[ConfigFile]) {
				t.Errorf("written twice, the bytes differ (%v)", err)
			}
			back, err := Decode(files[ConfigFile], files[WeightsFile])
			if err != nil {
				t.Fatal(err)
			}
			if back.BaseModel != saved.BaseModel || back.Config.R != saved.Config.R || back.Config.Dropout != saved.Config.Dropout {
				t.Errorf("read back: %+v, written %+v", back.Config, saved.Config)
			}
			for _, l := range layersOf(params) {
				if back.Config.Rank(l) != saved.Config.Rank(l) || back.Config.Scale(l) != saved.Config.Scale(l) || !back.Config.TargetModules.Match(l) {
					t.Errorf("%s has rank %d and scale %v, written %d and %v", l, back.Config.Rank(l), back.Config.Scale(l), saved.Config.Rank(l), saved.Config.Scale(l))
				}
			}
			read := paramsOf(t, dir)
			if err := back.Read(read); err != nil {
				t.Fatal(err)
			}
			for i, p := range params {
				if !slices.Equal(p.Data, read[i].Data) {
					t.Errorf("%s came back with other numbers", p.Name)
				}
			}
			sameKeys(t, files[ConfigFile], filepath.Join(dir, ConfigFile))
		})
	}
}

// sameKeys compares the values that PEFT wrote with ours: every key of ours is one of PEFT's.
func sameKeys(t *testing.T, ours []byte, path string) {
	t.Helper()
	var got, want map[string]any
	golden.JSON(t, path, &want)
	if err := json.Unmarshal(ours, &got); err != nil {
		t.Fatal(err)
	}
	sorted := func(v any) string {
		if list, ok := v.([]any); ok {
			names := make([]string, len(list))
			for i, x := range list {
				names[i] = fmt.Sprint(x)
			}
			slices.Sort(names)
			return fmt.Sprint(names)
		}
		return fmt.Sprint(v)
	}
	for k, v := range got {
		w, ok := want[k]
		if !ok || sorted(v) != sorted(w) {
			t.Errorf("%s is %v, PEFT wrote %v", k, v, w)
		}
	}
}

// TestPatternsEqualPEFT compares with PEFT's own matching functions.
func TestPatternsEqualPEFT(t *testing.T) {
	var cases []struct {
		Config json.RawMessage
		Layers [][4]any
	}
	golden.JSON(t, golden.Path(t, "families/patterns.json"), &cases)
	checked := 0
	for _, c := range cases {
		saved, err := parseConfig(c.Config)
		if err != nil {
			t.Fatalf("%s: %v", c.Config, err)
		}
		config := saved.Config
		for _, l := range c.Layers {
			path := l[0].(string)
			hit, rank, alpha := l[1].(bool), int(l[2].(float64)), l[3].(float64)
			if got := config.TargetModules.Match(path); got != hit {
				t.Errorf("%v matches %s: %v, PEFT %v", config.TargetModules, path, got, hit)
			}
			if got := config.Rank(path); got != rank {
				t.Errorf("%s: rank of %s is %d, PEFT %d", c.Config, path, got, rank)
			}
			if got := config.Scale(path); got != alpha/float64(rank) {
				t.Errorf("%s: scale of %s is %v, PEFT %v", c.Config, path, got, alpha/float64(rank))
			}
			checked++
		}
	}
	if checked < 300 {
		t.Errorf("only %d layers compared", checked)
	}
}

// TestEncodeTargets: all-linear is written as the names it stood for, an expression whose model is not known as itself.
func TestEncodeTargets(t *testing.T) {
	for _, c := range []struct {
		targets Targets
		want    string
	}{
		{Targets{AllLinear}, `["q_proj","up_proj"]`},
		{Targets{"v_proj", "q_proj"}, `["q_proj","v_proj"]`},
		{Targets{`.*\.(q|v)_proj`}, `".*\\.(q|v)_proj"`},
	} {
		files, err := Methods["lora"].Encode(Config{Shared: Shared{R: 1, Alpha: 1, TargetModules: c.targets}}, "base", []string{"layers.0.up_proj", "layers.1.up_proj", "layers.0.q_proj"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			Targets json.RawMessage `json:"target_modules"`
		}
		if err := json.Unmarshal(files[ConfigFile], &p); err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, p.Targets); err != nil || compact.String() != c.want {
			t.Errorf("%v is written as %s, want %s", c.targets, &compact, c.want)
		}
	}
}

// TestExpressionAsNames: the file has the shortest names that mean the layers of an expression. PEFT would match the expression with
// modules that are no linear layers, such as model.layers.0.self_attn, and with those of a network for images.
func TestExpressionAsNames(t *testing.T) {
	for _, c := range []struct{ scope, expression, want string }{
		{"model", `.*self_attn.*`, `["k_proj","q_proj"]`},
		{"model", `.*layers\.1\..*q_proj`, `["model.layers.1.self_attn.q_proj"]`},
		{"model", `^(?!.*layers\.0).*(mlp|self_attn)\..*`, `["model.layers.1.mlp.up_proj","model.layers.1.self_attn.k_proj","model.layers.1.self_attn.q_proj"]`},
		{"model.language_model", `.*q_proj`, `["model.language_model.layers.0.self_attn.q_proj","model.language_model.layers.1.self_attn.q_proj"]`},
		{"model.text_model", `.*q_proj`, `["model.text_model.layers.0.self_attn.q_proj","model.text_model.layers.1.self_attn.q_proj"]`},
	} {
		config := Default()
		config.TargetModules = Targets{c.expression}
		trained := &Trained{}
		for _, layer := range []string{"0.self_attn.q_proj", "0.self_attn.k_proj", "0.mlp.up_proj", "1.self_attn.q_proj", "1.self_attn.k_proj", "1.mlp.up_proj"} {
			path := c.scope + ".layers." + layer
			if trained.linear(path); config.Adapts(path) {
				trained.Layers = append(trained.Layers, path)
			}
		}
		written, notes := config.ForPEFT(trained, Mixture{})
		if got, _ := json.Marshal(written.fileTargets(trained.Layers)); string(got) != c.want || notes != nil {
			t.Errorf("%s: %s, want %s %v", c.expression, got, c.want, notes)
		}
	}
}

// good are the files of a whole adapter of one layer.
func good(t testing.TB) (config map[string]any, tensors map[string][]int) {
	t.Helper()
	config = map[string]any{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "lora_dropout": 0.0, "bias": "none", "target_modules": []string{"q_proj"}}
	return config, map[string][]int{peftPrefix + "l.q_proj" + suffixA: {2, 3}, peftPrefix + "l.q_proj" + suffixB: {4, 2}}
}

func goodParams() []Param {
	return []Param{{"l.q_proj" + suffixA, []int{2, 3}, make([]float32, 6)}, {"l.q_proj" + suffixB, []int{4, 2}, make([]float32, 8)}}
}

func encodeTensors(t testing.TB, tensors map[string][]int) []byte {
	t.Helper()
	var list []weights.Tensor
	for _, name := range sortedKeys(tensors) {
		n := 1
		for _, d := range tensors[name] {
			n *= d
		}
		x, err := weights.FromFloat32s(name, weights.F32, tensors[name], make([]float32, n))
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

// readAll is what a run does with an adapter folder.
func readAll(dir string) error {
	saved, err := Open(dir)
	if err != nil {
		return err
	}
	defer saved.Close()
	return saved.Read(goodParams())
}

func TestBrokenAdapters(t *testing.T) {
	set := func(k string, v any) func(map[string]any, map[string][]int) {
		return func(c map[string]any, _ map[string][]int) { c[k] = v }
	}
	for _, c := range []struct {
		name, want string
		edit       func(config map[string]any, tensors map[string][]int)
	}{
		{"whole", "", func(map[string]any, map[string][]int) {}},
		{"harmless keys", "", func(c map[string]any, _ map[string][]int) {
			c["megatron_core"], c["peft_version"], c["qalora_group_size"], c["revision"], c["task_type"] = "megatron.core", "0.18.1", 16, "main", "CAUSAL_LM"
			c["runtime_config"], c["a_later_key"], c["loftq_config"] = map[string]any{"ephemeral_gpu_offload": false}, nil, map[string]any{}
		}},
		{"without task_type", "", func(c map[string]any, _ map[string][]int) {
			c["task_type"] = nil
			c["auto_mapping"] = map[string]string{"base_model_class": "Qwen3ForCausalLM", "parent_library": "transformers.models.qwen3.modeling_qwen3"}
		}},
		{"loftq", "", func(c map[string]any, _ map[string][]int) {
			c["init_lora_weights"], c["loftq_config"] = "loftq", map[string]any{"loftq_bits": 4, "loftq_iter": 1}
		}},
		{"loftq of five steps", "loftq_config has loftq_iter 5: the adapter belongs to weights that PEFT quantised after it took " +
			"a part of them off, which are not in the folder; one of loftq_iter 1 belongs to the base model in NF4",
			func(c map[string]any, _ map[string][]int) {
				c["init_lora_weights"], c["loftq_config"] = "loftq", map[string]any{"loftq_bits": 4, "loftq_iter": 5}
			}},
		{"loftq_config of text", `loftq_config is "five": it is no object with a number loftq_iter`,
			func(c map[string]any, _ map[string][]int) {
				c["init_lora_weights"], c["loftq_config"] = "loftq", "five"
			}},
		{"gaussian", "", set("init_lora_weights", "gaussian")},
		{"pissa", "init_lora_weights is pissa: it may change the base model's weights, which is not supported", set("init_lora_weights", "pissa")},
		{"olora", "init_lora_weights is olora: it may change the base model's weights, which is not supported", set("init_lora_weights", "olora")},
		{"peft_type", `peft_type "LN_TUNING" is not one of IA3, LOKR, LORA, MISS, OFT, VERA`, set("peft_type", "LN_TUNING")},
		{"use_dora", "lora.target_parameters: DoRA trains linear layers alone; leave the key out, or write adapter: lora",
			func(c map[string]any, _ map[string][]int) {
				c["use_dora"], c["target_parameters"] = true, []string{"experts.down_proj"}
			}},
		{"bias", `bias "some": it is none of none, all and lora_only`, set("bias", "some")},
		{"fan_in_fan_out", "fan_in_fan_out is true: no model here stores its weights that way", set("fan_in_fan_out", true)},
		{"modules_to_save", `lora.modules_to_save: "lm_head" is empty or stands there twice`, set("modules_to_save", []string{"lm_head", "lm_head"})},
		{"use_qalora", "use_qalora is true: it is not supported", set("use_qalora", true)},
		{"exclude_modules", "", set("exclude_modules", []string{"v_proj"})},
		{"layer_replication", "layer_replication is [[0,1]]: it is not supported", set("layer_replication", [][]int{{0, 1}})},
		{"trainable_token_indices",
			`trainable_token_indices is "all": no list of numbers and no lists by the names of modules`,
			set("trainable_token_indices", "all")},
		{"unknown key", "velocity is 3: tierlora does not know whether it changes the adapter", set("velocity", 3)},
		{"no rank", "lora.r: 0 must be from 1 to 4096", set("r", 0)},
		{"rank of text", "line 1, column 71: r is a string, want a whole number", set("r", "eight")},
		{"no alpha", `lora_alpha "" is no number`, func(c map[string]any, _ map[string][]int) { delete(c, "lora_alpha") }},
		{"no targets", "target_modules is missing", func(c map[string]any, _ map[string][]int) { delete(c, "target_modules") }},
		{"targets of numbers", "target_modules holds 3, which is no name", set("target_modules", []any{"q_proj", 3})},
		{"expression", "lora.target_modules: \"(q_proj\" is no regular expression: error parsing regexp: missing closing ) in `(q_proj`", set("target_modules", "(q_proj")},
		{"lookahead", "lora.rank_pattern: \"(?=q\" is no regular expression: error parsing regexp: missing closing ) in `(?=q`", set("rank_pattern", map[string]int{"(?=q": 1})},
		{"two faults", "fan_in_fan_out is true: no model here stores its weights that way\n" +
			"use_qalora is true: it is not supported", func(c map[string]any, _ map[string][]int) {
			c["fan_in_fan_out"], c["use_qalora"] = true, true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, tensors := good(t)
			c.edit(config, tensors)
			dir := t.TempDir()
			raw, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, ConfigFile, raw)
			write(t, dir, WeightsFile, encodeTensors(t, tensors))
			want := c.want
			if want != "" {
				want = "read adapter " + filepath.Join(dir, ConfigFile) + ": " + want
			}
			if err := readAll(dir); fmt.Sprint(err) != want && (err != nil || want != "") {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

func TestBrokenWeights(t *testing.T) {
	misfit := func(have int, list string) string {
		return fmt.Sprintf("the adapter does not fit the model: it was made for a model that it does not name with rank 2 and has %d tensors, here 2 are expected:\n  %s", have, list)
	}
	a, b := peftPrefix+"l.q_proj"+suffixA, peftPrefix+"l.q_proj"+suffixB
	for _, c := range []struct {
		name, want string
		edit       func(t *testing.T, dir string, tensors map[string][]int)
	}{
		{"a tensor without a home", misfit(3, "1 unexpected:\n    base_model.model.l.v_proj.lora_A.weight"), func(t *testing.T, dir string, x map[string][]int) {
			x[peftPrefix+"l.v_proj"+suffixA] = []int{2, 3}
			write(t, dir, WeightsFile, encodeTensors(t, x))
		}},
		{"a home without a tensor", misfit(1, "1 missing:\n    "+b), func(t *testing.T, dir string, x map[string][]int) {
			delete(x, b)
			write(t, dir, WeightsFile, encodeTensors(t, x))
		}},
		{"another rank", misfit(2, "2 wrong shape:\n    "+a+": shape [3 3], expected [2 3]\n    "+b+": shape [4 3], expected [4 2]"), func(t *testing.T, dir string, x map[string][]int) {
			x[a], x[b] = []int{3, 3}, []int{4, 3}
			write(t, dir, WeightsFile, encodeTensors(t, x))
		}},
		{"names without PEFT's prefix", misfit(1, "2 missing:\n    "+a+"\n    "+b+"\n  1 unexpected:\n    l.q_proj.lora_A.weight"), func(t *testing.T, dir string, _ map[string][]int) {
			write(t, dir, WeightsFile, encodeTensors(t, map[string][]int{"l.q_proj" + suffixA: {2, 3}}))
		}},
		{"truncated", `read adapter: read safetensors file DIR/adapter_model.safetensors: tensor "` + b + `": data_offsets [24,56] lie beyond the 51 bytes of data: the file is cut short`, func(t *testing.T, dir string, x map[string][]int) {
			raw := encodeTensors(t, x)
			write(t, dir, WeightsFile, raw[:len(raw)-5])
		}},
		{"empty", "read adapter: read safetensors file DIR/adapter_model.safetensors: the file has 0 bytes, too few for the 8 byte header length", func(t *testing.T, dir string, _ map[string][]int) { write(t, dir, WeightsFile, nil) }},
		{"no weights", "read adapter: open weights: open DIR/adapter_model.safetensors: no such file or directory", func(*testing.T, string, map[string][]int) {}},
		{"no config", "read adapter: stat DIR/adapter_config.json: no such file or directory", func(t *testing.T, dir string, x map[string][]int) {
			if err := os.Remove(filepath.Join(dir, ConfigFile)); err != nil {
				t.Fatal(err)
			}
		}},
		{"no JSON", "read adapter DIR/adapter_config.json: line 1, column 1: expected a value, found 'r'", func(t *testing.T, dir string, x map[string][]int) {
			write(t, dir, ConfigFile, []byte("r: 8\n"))
		}},
		{"a long config", "read adapter: DIR/adapter_config.json has 1048577 bytes, more than the 1048576 that such a file may have", func(t *testing.T, dir string, x map[string][]int) {
			write(t, dir, ConfigFile, bytes.Repeat([]byte{' '}, maxConfig+1))
		}},
		{"a pattern twice", `read adapter DIR/adapter_config.json: rank_pattern: "q_proj" stands there twice`, func(t *testing.T, dir string, x map[string][]int) {
			write(t, dir, ConfigFile, []byte(`{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["q_proj"],"rank_pattern":{"q_proj":2,"q_proj":3}}`))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, tensors := good(t)
			dir := t.TempDir()
			raw, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, ConfigFile, raw)
			c.edit(t, dir, tensors)
			want := strings.ReplaceAll(c.want, "DIR", dir)
			if err := readAll(dir); err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

func write(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRevisionOfTheBase: PEFT's files name a base model's revision in a key of its own, and base_model behind an @.
func TestRevisionOfTheBase(t *testing.T) {
	c := Default()
	for base, want := range map[string][2]string{
		"org/name@v1": {"org/name", "v1"}, "org/name@a/b": {"org/name", "a/b"}, "org/name": {"org/name", ""}, "./m@v1": {"./m@v1", ""}, "/models/m@v1": {"/models/m@v1", ""},
	} {
		raw, err := formatLoRA(c, base, nil)
		if err != nil {
			t.Fatal(err)
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(raw, &keys); err != nil {
			t.Fatal(err)
		}
		var name, revision string
		_ = json.Unmarshal(keys["base_model_name_or_path"], &name)
		_ = json.Unmarshal(keys["revision"], &revision)
		if _, there := keys["revision"]; [2]string{name, revision} != want || there != (want[1] != "") {
			t.Errorf("%s is written as %s, %s; want %v", base, name, revision, want)
		}
		if _, got, err := parseLoRA(raw, keys); err != nil || got != base {
			t.Errorf("%s is read as %s (%v)", base, got, err)
		}
	}
	if got := withRevision("org/name", "main"); got != "org/name" {
		t.Errorf("main: %s", got)
	}
}
