package model_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
)

func TestLoadConfig(t *testing.T) {
	c, err := families.LoadConfig("../configs/assets/stories260K")
	if err != nil {
		t.Fatal(err)
	}
	want := model.Config{
		ModelType: "llama", VocabSize: 512, HiddenSize: 64, IntermediateSize: 172, NumLayers: 5,
		NumHeads: 8, NumKVHeads: 4,
		HeadDim: 8, RMSNormEps: 1e-5, RopeTheta: 10000, RopeScaling: model.RopeScaling{Type: "default"},
		MaxPositions:  512,
		TieEmbeddings: true, HiddenAct: "silu", BOS: []int{1}, EOS: []int{2}, DType: "float32",
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("stories260K:\n%+v, expected\n%+v", c, want)
	}
	if _, err := families.LoadConfig(t.TempDir()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(),
		"config.json") {
		t.Errorf("an empty folder: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := families.LoadConfig(dir); err == nil || !strings.Contains(err.Error(), dir) ||
		!strings.Contains(err.Error(), "not JSON") {
		t.Errorf("a broken file: %v", err)
	}
}

func TestTinyLlama(t *testing.T) { compareFile(t, "testdata/tinyllama-1.1b.config.json", tinyLlama) }

// TestSharedConfigs reads the config.json files that the licence keeps out of
// the tree.
func TestSharedConfigs(t *testing.T) {
	shared := os.Getenv("TRAINER_DATA")
	if shared == "" {
		t.Skip("TRAINER_DATA is not set: the config.json files of Llama-2, Llama-3.1, Qwen2.5 and SmolLM2 are not in " +
			"the repository")
	}
	for name, want := range sharedConfigs {
		compareFile(t, filepath.Join(shared, "data", "configs", name), want)
	}
	mistral := tinyLlama
	mistral.ModelType, mistral.VocabSize, mistral.HiddenSize, mistral.IntermediateSize = "mistral", 32768, 4096, 14336
	mistral.NumLayers, mistral.NumHeads, mistral.NumKVHeads, mistral.HeadDim = 32, 32, 8, 128
	mistral.RopeTheta, mistral.MaxPositions, mistral.DType = 1e6, 32768, "bfloat16"
	compareFile(t, filepath.Join(shared, "data", "tokenizers", "mistral-7b-instruct-v0.3", "config.json"), mistral)
}

func compareFile(t *testing.T, path string, want model.Config) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	got, err := families.ParseConfig(data)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n%+v, expected\n%+v", path, got, want)
	}
}

var tinyLlama = model.Config{
	ModelType: "llama", VocabSize: 32000, HiddenSize: 2048, IntermediateSize: 5632, NumLayers: 22,
	NumHeads: 32, NumKVHeads: 4,
	HeadDim: 64, RMSNormEps: 1e-5, RopeTheta: 10000, RopeScaling: model.RopeScaling{Type: "default"},
	MaxPositions: 2048,
	HiddenAct:    "silu", BOS: []int{1}, EOS: []int{2}, DType: "float32",
}

var sharedConfigs = map[string]model.Config{
	"tinyllama-1.1b.config.json": tinyLlama,
	"tinyllama-1.1b-chat.config.json": func() model.Config {
		c := tinyLlama
		c.DType = "bfloat16"
		return c
	}(),
	"llama-2-7b-hf.config.json": {
		ModelType: "llama", VocabSize: 32000, HiddenSize: 4096, IntermediateSize: 11008, NumLayers: 32, NumHeads: 32,
		NumKVHeads: 32,
		HeadDim:    128, RMSNormEps: 1e-5, RopeTheta: 10000, RopeScaling: model.RopeScaling{Type: "default"},
		MaxPositions: 4096,
		HiddenAct:    "silu", BOS: []int{1}, EOS: []int{2}, DType: "float16",
	},
	"llama-3.1-8b.config.json": {
		ModelType: "llama", VocabSize: 128256, HiddenSize: 4096, IntermediateSize: 14336, NumLayers: 32,
		NumHeads: 32, NumKVHeads: 8,
		HeadDim: 128, RMSNormEps: 1e-5, RopeTheta: 500000, MaxPositions: 8192, HiddenAct: "silu", BOS: []int{128000},
		EOS: []int{128009},
		RopeScaling: model.RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4,
			OriginalMaxPositions: 8192},
	},
	"qwen2.5-3b-instruct.config.json": {
		ModelType: "qwen2", VocabSize: 151936, HiddenSize: 2048, IntermediateSize: 11008, NumLayers: 36,
		NumHeads: 16, NumKVHeads: 2,
		HeadDim: 128, RMSNormEps: 1e-6, RopeTheta: 1e6, RopeScaling: model.RopeScaling{Type: "default"},
		MaxPositions:  32768,
		TieEmbeddings: true, QKVBias: true, HiddenAct: "silu", BOS: []int{151643}, EOS: []int{151645},
		DType: "bfloat16",
	},
	"smollm2-135m.config.json": {
		ModelType: "llama", VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, NumLayers: 30,
		NumHeads: 9, NumKVHeads: 3,
		HeadDim: 64, RMSNormEps: 1e-5, RopeTheta: 100000, RopeScaling: model.RopeScaling{Type: "default"},
		MaxPositions:  8192,
		TieEmbeddings: true, HiddenAct: "silu", BOS: []int{0}, EOS: []int{0}, DType: "bfloat16",
	},
}

const sizes = `"vocab_size":100,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":512`

func parse(family, more string) (model.Config, error) {
	if more != "" {
		more = "," + more
	}
	return families.ParseConfig([]byte(`{"model_type":"` + family + `",` + sizes + more + `}`))
}

func TestOptions(t *testing.T) {
	windows := func(c model.Config) (w []int) {
		for i := range c.NumLayers {
			w = append(w, c.Window(i))
		}
		return w
	}
	for _, c := range []struct {
		family, more string
		get          func(model.Config) any
		want         any
	}{
		{"llama", ``, func(c model.Config) any { return c.RMSNormEps }, 1e-6},
		{"llama", ``, func(c model.Config) any { return c.BOS }, []int(nil)},
		{"llama", `"eos_token_id":[2,-1,100,99]`, func(c model.Config) any { return c.EOS }, []int{2, 99}},
		{"llama", `"bos_token_id":null,"eos_token_id":[2,3]`, func(c model.Config) any { return c.EOS }, []int{2, 3}},
		{"llama", `"attention_bias":true,"mlp_bias":true`, func(c model.Config) any {
			return [3]bool{c.QKVBias, c.OBias, c.MLPBias}
		}, [3]bool{true, true, true}},
		{"qwen2", `"attention_bias":true`, func(c model.Config) any {
			return [3]bool{c.QKVBias, c.OBias, c.MLPBias}
		}, [3]bool{true, false, false}},
		{"llama", `"head_dim":null`, func(c model.Config) any { return c.HeadDim }, 16},
		{"llama", `"head_dim":32`, func(c model.Config) any { return c.HeadDim }, 32},
		{"llama", `"hidden_act":"swish"`, func(c model.Config) any { return c.HiddenAct }, "silu"},
		{"llama", `"torch_dtype":"float16","dtype":"bfloat16"`, func(c model.Config) any {
			return c.DType
		}, "bfloat16"},
		{"llama", `"rope_scaling":null,"rope_parameters":{"rope_theta":5e5,"partial_rotary_factor":1.0}`,
			func(c model.Config) any {
				return c.RopeTheta
			}, 5e5},
		{"llama", `"rope_theta":5e5,"rope_parameters":{"rope_theta":500000,"rope_type":"linear","factor":2}`,
			func(c model.Config) any {
				return c.RopeScaling
			}, model.RopeScaling{Type: "linear", Factor: 2}},
		{"llama",
			`"rope_scaling":{"type":"linear","rope_type":"linear","factor":2},"rope_parameters":{"rope_type":"linear","factor":2.0}`, func(c model.Config) any {
				return c.RopeScaling.Factor
			}, 2.0},
		{"llama",
			`"rope_scaling":{"type":"yarn","factor":4,"mscale":1,"mscale_all_dim":0.5,"truncate":false,"beta_fast":null}`, func(c model.Config) any {
				return c.RopeScaling
			},
			model.RopeScaling{Type: "yarn", Factor: 4, MScale: 1, MScaleAllDim: 0.5, NoTruncate: true}},
		{"llama",
			`"_anything":{"x":[1]},"use_cache":false,"pad_token_id":-1,"pretraining_tp":4,"id2label":{"0":"a"},"quantization_config":null,"pruned_heads":{}`, func(c model.Config) any {
				return c.VocabSize
			}, 100},
		{"llama",
			`"sliding_window":128,"use_sliding_window":false,"max_window_layers":3,"layer_types":["full_attention","full_attention","full_attention","full_attention"]`, func(c model.Config) any {
				return windows(c)
			}, []int{0, 0, 0, 0}},
		{"mistral", ``, func(c model.Config) any { return windows(c) }, []int{4096, 4096, 4096, 4096}},
		{"mistral", `"sliding_window":null`, func(c model.Config) any { return windows(c) }, []int{0, 0, 0, 0}},
		{"mistral", `"sliding_window":32`, func(c model.Config) any { return windows(c) }, []int{32, 32, 32, 32}},
		{"qwen2", `"sliding_window":32`, func(c model.Config) any { return windows(c) }, []int{0, 0, 0, 0}},
		{"qwen2", `"use_sliding_window":true`, func(c model.Config) any { return c.SlidingWindow }, 0},
		{"qwen2", `"use_sliding_window":true,"max_window_layers":3`, func(c model.Config) any {
			return windows(c)
		}, []int{0, 0, 0, 4096}},
		{"qwen2", `"use_sliding_window":true,"sliding_window":32,"max_window_layers":2`, func(c model.Config) any {
			return windows(c)
		}, []int{0, 0, 32, 32}},
		{"qwen2", `"use_sliding_window":true,"sliding_window":null,"max_window_layers":2`, func(c model.Config) any {
			return windows(c)
		}, []int{0, 0, 0, 0}},
		{"qwen2",
			`"use_sliding_window":true,"sliding_window":32,"layer_types":["sliding_attention","full_attention","sliding_attention","full_attention"]`, func(c model.Config) any {
				return windows(c)
			}, []int{32, 0, 32, 0}},
	} {
		got, err := parse(c.family, c.more)
		if err != nil {
			t.Errorf("%s %s: %v", c.family, c.more, err)
		} else if v := c.get(got); !reflect.DeepEqual(v, c.want) {
			t.Errorf("%s %s: %v, expected %v", c.family, c.more, v, c.want)
		}
	}
	c, err := families.ParseConfig([]byte(`{"architectures":["MistralForCausalLM"],"hidden_act":null,` + sizes + `}`))
	if err != nil || c.ModelType != "mistral" || c.HiddenAct != "silu" {
		t.Errorf("family by architecture: %+v, %v", c, err)
	}
	c, err = families.ParseConfig([]byte(`{"model_type":"llama","architectures":["LLaMAForCausalLM"],` +
		strings.Replace(sizes, `"num_key_value_heads":2,`, "", 1) + `}`))
	if err != nil || c.NumKVHeads != 4 {
		t.Errorf("llama without key/value heads: %+v, %v", c, err)
	}
}

// TestReadsQuantization takes quantization_config as transformers writes it for bitsandbytes: with the keys of
// unsloth/Llama-3.2-1B-Instruct-unsloth-bnb-4bit and those of 8 bits, and as it was before there was quant_method.
func TestReadsQuantization(t *testing.T) {
	const unsloth = `{"_load_in_4bit":true,"_load_in_8bit":false,"bnb_4bit_compute_dtype":"bfloat16","bnb_4bit_quant_storage":"uint8",
		"bnb_4bit_quant_type":"nf4","bnb_4bit_use_double_quant":true,"llm_int8_enable_fp32_cpu_offload":false,"llm_int8_has_fp16_weight":false,
		"llm_int8_skip_modules":["lm_head","multi_modal_projector","merger","modality_projection","model.layers.1.mlp"],"llm_int8_threshold":6.0,
		"load_in_4bit":true,"load_in_8bit":false,"quant_method":"bitsandbytes"}`
	for text, want := range map[string]*model.Quantization{
		unsloth: {Method: "bitsandbytes", Bits: 4, Type: "nf4", DoubleQuant: true, Threshold: 6, Compute: "bfloat16",
			Skip: []string{"lm_head", "multi_modal_projector", "merger", "modality_projection", "model.layers.1.mlp"}},
		`{"load_in_8bit":true,"llm_int8_threshold":0.0,"quant_method":"bitsandbytes"}`: {Method: "bitsandbytes",
			Bits: 8},
		`{"load_in_4bit":true,"load_in_8bit":false,"llm_int8_skip_modules":null}`: {Method: "bitsandbytes", Bits: 4,
			Type: "fp4", Threshold: 6, Compute: "float32"},
		`{}`:   nil,
		`null`: nil,
	} {
		c, err := families.ParseConfig(
			[]byte(`{"model_type":"llama","vocab_size":100,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
			"num_attention_heads":4,"max_position_embeddings":128,"unsloth_fixed":true,"quantization_config":` + text + `}`))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !reflect.DeepEqual(c.Quantization, want) {
			t.Errorf("%s is %+v, want %+v", text, c.Quantization, want)
		}
	}
}
