package model_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
)

// TestReleasesOfLlamaLikeFamilies reads the config.json of releases, in transformers 4's spelling and in 5's.
func TestReleasesOfLlamaLikeFamilies(t *testing.T) {
	nope := make([]bool, 36)
	var ministral []string
	for i := range nope {
		nope[i] = i%4 == 3
		ministral = append(ministral, []string{model.FullAttention, model.SlidingAttention, model.SlidingAttention,
			model.SlidingAttention}[i%4])
	}
	plain := model.RopeScaling{Type: "default"}
	smollm3 := model.Config{
		ModelType: "smollm3", VocabSize: 128256, HiddenSize: 2048, IntermediateSize: 11008, NumLayers: 36,
		NumHeads: 16, NumKVHeads: 4,
		HeadDim: 128, RMSNormEps: 1e-6, RopeTheta: 5e6, RopeScaling: plain, MaxPositions: 65536, TieEmbeddings: true,
		NoPositions: nope,
		LayerTypes:  slices.Repeat([]string{model.FullAttention}, 36), HiddenAct: "silu", EOS: []int{128012},
		DType: "bfloat16",
	}
	olmo2 := model.Config{
		ModelType: "olmo2", VocabSize: 100352, HiddenSize: 4096, IntermediateSize: 11008, NumLayers: 32, NumHeads: 32,
		NumKVHeads: 32,
		HeadDim:    128, RMSNormEps: 1e-6, RopeTheta: 5e5, RopeScaling: plain, MaxPositions: 4096, HiddenAct: "silu",
		EOS: []int{100257}, DType: "bfloat16",
	}
	want := []model.Config{{
		ModelType: "qwen3", VocabSize: 151936, HiddenSize: 1024, IntermediateSize: 3072, NumLayers: 28,
		NumHeads: 16, NumKVHeads: 8,
		HeadDim: 128, RMSNormEps: 1e-6, RopeTheta: 1e6, RopeScaling: plain, MaxPositions: 40960,
		TieEmbeddings: true, QKNorm: true,
		HiddenAct: "silu", BOS: []int{151643}, EOS: []int{151645}, DType: "bfloat16",
	}, {
		ModelType: "qwen3", VocabSize: 151936, HiddenSize: 4096, IntermediateSize: 12288, NumLayers: 36,
		NumHeads: 32, NumKVHeads: 8,
		HeadDim: 128, RMSNormEps: 1e-6, RopeTheta: 1e6, RopeScaling: plain, MaxPositions: 40960, QKNorm: true,
		LayerTypes: slices.Repeat([]string{model.FullAttention}, 36), HiddenAct: "silu", BOS: []int{151643},
		EOS: []int{151645}, DType: "bfloat16",
	}, smollm3, smollm3, {
		ModelType: "granite", VocabSize: 49159, HiddenSize: 4096, IntermediateSize: 12800, NumLayers: 40,
		NumHeads: 32, NumKVHeads: 8,
		HeadDim: 128, RMSNormEps: 1e-5, RopeTheta: 1e7, RopeScaling: plain, MaxPositions: 131072, TieEmbeddings: true,
		EmbeddingScale: 12, ResidualScale: 0.22, LogitDivisor: 16, AttentionScale: 0.0078125, HiddenAct: "silu",
		BOS: []int{0}, EOS: []int{0}, DType: "bfloat16",
	}, {
		ModelType: "granite", VocabSize: 100352, HiddenSize: 4096, IntermediateSize: 32768, NumLayers: 64,
		NumHeads: 32, NumKVHeads: 8,
		HeadDim: 128, RMSNormEps: 1e-5, RopeTheta: 5e7, RopeScaling: plain, MaxPositions: 131072,
		EmbeddingScale: 1, ResidualScale: 1, LogitDivisor: 1, AttentionScale: 0.0078125, HiddenAct: "silu",
		BOS: []int{100283}, EOS: []int{100257},
	}, olmo2, olmo2, {
		ModelType: "ministral", VocabSize: 131072, HiddenSize: 4096, IntermediateSize: 12288, NumLayers: 36,
		NumHeads: 32, NumKVHeads: 8,
		HeadDim: 128, RMSNormEps: 1e-5, RopeTheta: 1e8, RopeScaling: plain, MaxPositions: 131072, SlidingWindow: 32768,
		LayerTypes: ministral,
		HiddenAct:  "silu", BOS: []int{1}, EOS: []int{2}, DType: "bfloat16",
	}}
	checkReleases(t, "llama_like_releases.json", want, `"gate_scale": 2`, "gate_scale = 2: unknown key", nil)
}

func TestLlamaLikeOptions(t *testing.T) {
	windows := func(c model.Config) (w []int) {
		for i := range c.NumLayers {
			w = append(w, c.Window(i))
		}
		return w
	}
	rotates := func(c model.Config) (w []bool) {
		for i := range c.NumLayers {
			w = append(w, c.Rotates(i))
		}
		return w
	}
	biases := func(c model.Config) [3]bool { return [3]bool{c.QKVBias, c.OBias, c.MLPBias} }
	for _, c := range []struct {
		family, more string
		get          func(model.Config) any
		want         any
	}{
		{"qwen3", ``, func(c model.Config) any { return c.HeadDim }, 128},
		{"qwen3", `"head_dim":16`, func(c model.Config) any { return c.HeadDim }, 16},
		{"qwen3", ``, func(c model.Config) any { return biases(c) }, [3]bool{}},
		{"qwen3", `"attention_bias":true`, func(c model.Config) any { return biases(c) }, [3]bool{true, true, false}},
		{"qwen3", `"sliding_window":32`, func(c model.Config) any { return windows(c) }, []int{0, 0, 0, 0}},
		{"qwen3", `"use_sliding_window":true,"sliding_window":32,"max_window_layers":2`, func(c model.Config) any {
			return windows(c)
		}, []int{0, 0, 32, 32}},
		{"smollm3", ``, func(c model.Config) any {
			return []any{c.TieEmbeddings, c.RopeTheta, rotates(c)}
		}, []any{true, 2e6, []bool{true, true, true, false}}},
		{"smollm3", `"tie_word_embeddings":false,"no_rope_layer_interval":2`, func(c model.Config) any {
			return []any{c.TieEmbeddings, rotates(c)}
		}, []any{false, []bool{true, false, true, false}}},
		{"smollm3", `"no_rope_layer_interval":9`, func(c model.Config) any {
			return rotates(c)
		}, []bool{true, true, true, true}},
		{"smollm3", `"no_rope_layer_interval":2,"no_rope_layers":[0,1,1,0,0]`, func(c model.Config) any {
			return rotates(c)
		}, []bool{false, true, true, false}},
		{"smollm3", `"attention_bias":true,"mlp_bias":true`, func(c model.Config) any {
			return biases(c)
		}, [3]bool{true, true, true}},
		{"smollm3", `"sliding_window":32`, func(c model.Config) any { return windows(c) }, []int{0, 0, 0, 0}},
		{"smollm3", `"use_sliding_window":true,"sliding_window":32,"no_rope_layers":[1,0,1,0]`,
			func(c model.Config) any {
				return windows(c)
			}, []int{0, 32, 0, 32}},
		{"smollm3",
			`"use_sliding_window":true,"sliding_window":32,"layer_types":["sliding_attention","full_attention","full_attention","full_attention"]`, func(c model.Config) any {
				return windows(c)
			}, []int{32, 0, 0, 0}},
		{"granite", ``, func(c model.Config) any {
			return [4]float64{c.EmbeddingScale, c.ResidualScale, c.LogitDivisor, c.AttentionScale}
		}, [4]float64{1, 1, 1, 1}},
		{"granite", `"attention_dropout":0.1`, func(c model.Config) any { return c.VocabSize }, 100},
		{"granite", `"attention_bias":true,"mlp_bias":true`, func(c model.Config) any {
			return biases(c)
		}, [3]bool{true, true, true}},
		{"olmo2", ``, func(c model.Config) any { return []any{c.RMSNormEps, biases(c)} }, []any{1e-5, [3]bool{}}},
		{"olmo2", `"attention_bias":true,"rms_norm_eps":1e-6`, func(c model.Config) any {
			return []any{c.RMSNormEps, biases(c)}
		}, []any{1e-6, [3]bool{true, true, false}}},
		{"ministral", ``, func(c model.Config) any { return windows(c) }, []int{4096, 4096, 4096, 4096}},
		{"ministral", `"sliding_window":null`, func(c model.Config) any { return windows(c) }, []int{0, 0, 0, 0}},
		{"ministral",
			`"sliding_window":9,"layer_types":["full_attention","sliding_attention","full_attention","full_attention"]`,
			func(c model.Config) any {
				return windows(c)
			}, []int{0, 9, 0, 0}},
		{"ministral",
			`"sliding_window":9,"layer_types":["full_attention","full_attention","full_attention","full_attention"]`,
			func(c model.Config) any {
				return c.SlidingWindow
			}, 0},
	} {
		got, err := parse(c.family, c.more)
		if err != nil {
			t.Errorf("%s %s: %v", c.family, c.more, err)
		} else if v := c.get(got); !reflect.DeepEqual(v, c.want) {
			t.Errorf("%s %s: %v, expected %v", c.family, c.more, v, c.want)
		}
	}
}

func TestLlamaLikeRefuses(t *testing.T) {
	for _, c := range []struct{ family, more, want string }{
		{"qwen3", `"hidden_act":"relu"`, `hidden_act = "relu"`},
		{"qwen3", `"mlp_bias":true`, `mlp_bias = true: qwen3 has no biases in its MLP`},
		{"qwen3", `"attention_dropout":0.1`, `attention_dropout = 0.1: training here has no dropout`},
		{"qwen3", `"layer_types":["sliding_attention","full_attention","full_attention","full_attention"]`,
			`layer_types[0] = "sliding_attention" but no window is in use (use_sliding_window, sliding_window)`},
		{"qwen3", `"embedding_multiplier":2.0`, `embedding_multiplier = 2.0: unknown key`},
		{"smollm3", `"no_rope_layers":[1,0,1]`, `no_rope_layers names 3 layers, num_hidden_layers is 4`},
		{"smollm3", `"no_rope_layers":"all"`, `no_rope_layers = "all": must be a list of whole numbers`},
		{"smollm3", `"no_rope_layer_interval":0`, `no_rope_layer_interval = 0: must be at least 1`},
		{"smollm3",
			`"sliding_window":8,"layer_types":["sliding_attention","full_attention","full_attention","full_attention"]`,
			`layer_types[0] = "sliding_attention" but no window is in use`},
		{"granite", `"residual_multiplier":-0.2`, `residual_multiplier = -0.2: must be 1e-6 to 1e6`},
		{"granite", `"logits_scaling":0`, `logits_scaling = 0: must not be zero`},
		{"granite", `"attention_multiplier":1e-9`, `attention_multiplier = 1e-09: must be 1e-6 to 1e6`},
		{"granite", `"attention_dropout":1.5`, `attention_dropout = 1.5: must be at least 0 and below 1`},
		{"granite", `"sliding_window":8`, `sliding_window = 8: unknown key`},
		{"olmo2", `"clip_qkv":8.0`, `clip_qkv = 8.0: this change to the attention or the logits is not supported`},
		{"olmo2", `"mlp_bias":true`, `mlp_bias = true: olmo2 has no biases in its MLP`},
		{"ministral", `"attention_bias":true`, `attention_bias = true: ministral has no biases`},
		{"ministral",
			`"sliding_window":null,"layer_types":["sliding_attention","full_attention","full_attention","full_attention"]`, `layer_types[0] = "sliding_attention" but no window is in use (sliding_window)`},
		{"llava", `"text_config":{},"vision_config":{}`, `model_type = "llava" with a text_config is a model of text ` +
			`and images, which is not supported (supported: `},
		{"llava", `"text_config":{"model_type":"llama"}`, `and only text models are supported. Its language model ` +
			`computes what llama does: save that as a folder of its own: python scripts/language_model.py DIR llama OUT`},
		{"paligemma", `"text_config":{"model_type":"gemma"}`, `is a model of text and images, which is not ` +
			`supported, and neither is its language model "gemma", whose prompts see later tokens (supported: `},
		{"llama4", `"text_config":{"model_type":"llama4_text"}`, `is a model of text and images, which is not ` +
			`supported, and neither is its language model "llama4_text" (supported: `},
		{"llama4_text", ``, `model_type = "llama4_text" is not supported (supported: `},
		{"gemma3n_text", ``, `model_type = "gemma3n_text" is not supported (supported: `},
		{"qwen3_vl_moe", `"text_config":{"model_type":"qwen3_vl_moe_text"}`, `Its language model computes what ` +
			`qwen3_moe does: save that as a folder of its own: python scripts/language_model.py DIR qwen3_moe OUT`},
		{"qwen3_vl_text", ``, `model_type = "qwen3_vl_text" is the language model of a model of text and images; of ` +
			`text it computes what qwen3 does: save it as one, from the whole model's folder: python ` +
			`scripts/language_model.py DIR qwen3 OUT`},
	} {
		_, err := parse(c.family, c.more)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.family, c.more, err, c.want)
		}
	}
}
