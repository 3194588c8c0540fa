package model_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
)

// patterned is layer_types with a full layer at every n-th place.
func patterned(layers, n int) []string {
	kinds := slices.Repeat([]string{model.SlidingAttention}, layers)
	for i := n - 1; i < layers; i += n {
		kinds[i] = model.FullAttention
	}
	return kinds
}

// TestReleasesOfGemma reads the config.json of releases, in transformers 4's spelling and in 5's.
func TestReleasesOfGemma(t *testing.T) {
	plain, eight := model.RopeScaling{Type: "default"}, model.RopeScaling{Type: "linear", Factor: 8}
	gemma2 := model.Config{
		ModelType: "gemma2", VocabSize: 256000, HiddenSize: 2304, IntermediateSize: 9216, NumLayers: 26, NumHeads: 8,
		NumKVHeads: 4, HeadDim: 256,
		RMSNormEps: 1e-6, RopeTheta: 10000, RopeScaling: plain, MaxPositions: 8192, TieEmbeddings: true,
		SlidingWindow: 4096, LayerTypes: patterned(26, 2),
		AttentionScale: 1. / 16, AttentionCap: 50, LogitCap: 30, HiddenAct: "gelu_pytorch_tanh", BOS: []int{2},
		EOS: []int{1, 107}, DType: "bfloat16",
	}
	gemma3 := model.Config{
		ModelType: "gemma3_text", VocabSize: 262144, HiddenSize: 1152, IntermediateSize: 6912, NumLayers: 26,
		NumHeads: 4, NumKVHeads: 1, HeadDim: 256,
		RMSNormEps: 1e-6, RopeTheta: 1e6, RopeScaling: plain, MaxPositions: 32768, TieEmbeddings: true,
		SlidingWindow: 512, LayerTypes: patterned(26, 6),
		AttentionScale: 1. / 16, LocalRopeTheta: 10000, LocalRopeScaling: plain, HiddenAct: "gelu_pytorch_tanh",
		BOS: []int{2}, EOS: []int{1, 106}, DType: "bfloat16",
	}
	images := gemma3
	images.ModelType, images.Multimodal, images.VocabSize, images.MaxPositions, images.SlidingWindow,
		images.RopeScaling = "gemma3", true, 262208, 131072, 1024, eight
	large, middle := images, images
	large.HiddenSize, large.IntermediateSize, large.NumLayers, large.NumHeads, large.NumKVHeads, large.HeadDim = 5376,
		21504, 62, 32, 16, 128
	large.LayerTypes, large.AttentionScale, large.BOS = patterned(62, 6), 1/math.Sqrt(168), nil
	middle.HiddenSize, middle.IntermediateSize, middle.NumLayers, middle.NumHeads, middle.NumKVHeads = 3840,
		15360, 48, 16, 8
	middle.LayerTypes, middle.EOS = patterned(48, 6), []int{106}
	want := []model.Config{gemma2, gemma2, gemma3, gemma3, large, middle}
	checkReleases(t, "gemma_releases.json", want, `"gate_scale": 2`, "gate_scale = 2: unknown key",
		func(name, text string, got model.Config) {
			if !got.Multimodal {
				return
			}
			inner := strings.Replace(text, `"text_config": {`, `"text_config": {"altup_num_inputs": 4, `, 1)
			if _, err := families.ParseConfig([]byte(inner)); err == nil || !strings.Contains(err.Error(),
				"altup_num_inputs = 4: unknown key") {
				t.Errorf("%s with a new key of the language model: %v", name, err)
			}
		})
}

func TestGemmaOptions(t *testing.T) {
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
		{"gemma", ``, func(c model.Config) any {
			return []any{c.HeadDim, c.TieEmbeddings, c.HiddenAct, windows(c)}
		}, []any{256, true, "gelu_pytorch_tanh", []int{0, 0, 0, 0}}},
		{"gemma", `"hidden_act":"gelu_new","hidden_activation":null`, func(c model.Config) any {
			return c.HiddenAct
		}, "gelu_pytorch_tanh"},
		{"gemma2", ``, func(c model.Config) any {
			return []any{c.AttentionCap, c.LogitCap, c.AttentionScale, windows(c)}
		}, []any{50., 30., 1. / 16, []int{4096, 0, 4096, 0}}},
		{"gemma2", `"attn_logit_softcapping":null,"final_logit_softcapping":null`, func(c model.Config) any {
			return []any{c.AttentionCap, c.LogitCap}
		}, []any{0., 0.}},
		{"gemma2", `"query_pre_attn_scalar":144,"sliding_window":9,"sliding_window_size":9`, func(c model.Config) any {
			return []any{c.AttentionScale, windows(c)}
		}, []any{1. / 12, []int{9, 0, 9, 0}}},
		{"gemma2", `"layer_types":["full_attention","full_attention","full_attention","sliding_attention"]`,
			func(c model.Config) any {
				return windows(c)
			}, []int{0, 0, 0, 4096}},
		{"gemma", `"hidden_act":"gelu","hidden_activation":"gelu"`, func(c model.Config) any {
			return c.HiddenAct
		}, "gelu"},
		{"gemma2", `"hidden_activation":"gelu_python"`, func(c model.Config) any { return c.HiddenAct }, "gelu"},
		{"llama", `"hidden_act":"gelu"`, func(c model.Config) any { return c.HiddenAct }, "gelu"},
		{"gemma2", `"hidden_act":"relu","hidden_activation":"silu","attention_bias":true,"tie_word_embeddings":false`,
			func(c model.Config) any {
				return []any{c.HiddenAct, c.QKVBias, c.OBias, c.TieEmbeddings}
			}, []any{"silu", true, true, false}},
		{"gemma3_text", ``, func(c model.Config) any {
			return []any{c.RopeTheta, c.LocalRopeTheta, c.LogitCap, windows(c)}
		}, []any{1e6, 1e4, 0., []int{4096, 4096, 4096, 4096}}},
		{"gemma3_text", `"sliding_window_pattern":2,"attn_logit_softcapping":50.0,"final_logit_softcapping":20.0`,
			func(c model.Config) any {
				return []any{c.AttentionCap, c.LogitCap, windows(c)}
			}, []any{0., 20., []int{4096, 0, 4096, 0}}},
		{"gemma3_text",
			`"rope_parameters":{"full_attention":{"rope_type":"linear","factor":4},"sliding_attention":{"rope_type":"yarn","factor":2,"rope_theta":77}}`, func(c model.Config) any {
				return []any{c.RopeTheta, c.RopeScaling, c.LocalRopeTheta, c.LocalRopeScaling}
			}, []any{1e6, model.RopeScaling{Type: "linear", Factor: 4}, 77.,
				model.RopeScaling{Type: "yarn", Factor: 2}}},
	} {
		got, err := parse(c.family, c.more)
		if err != nil {
			t.Errorf("%s %s: %v", c.family, c.more, err)
		} else if v := c.get(got); !reflect.DeepEqual(v, c.want) {
			t.Errorf("%s %s: %v, expected %v", c.family, c.more, v, c.want)
		}
	}
}

// TestQuantisedWithImages: quantization_config stands beside text_config and is the language model's.
func TestQuantisedWithImages(t *testing.T) {
	c, err := families.ParseConfig([]byte(`{"model_type":"gemma3","text_config":{},
		"quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"nf4"}}`))
	if want := (&model.Quantization{Method: model.BitsAndBytes, Bits: 4, Type: "nf4", Threshold: 6,
		Compute: "float32"}); err != nil || !reflect.DeepEqual(c.Quantization, want) {
		t.Errorf("%+v, %v, want %+v", c.Quantization, err, want)
	}
}

func TestGemmaRefuses(t *testing.T) {
	for _, c := range []struct{ family, more, want string }{
		{"gemma", `"hidden_act":"quick_gelu"`,
			`hidden_act = "quick_gelu": supported are silu, gelu_pytorch_tanh and gelu`},
		{"gemma", `"hidden_act":"silu","hidden_activation":"gelu_pytorch_tanh"`,
			`hidden_activation = "gelu_pytorch_tanh" and hidden_act = "silu" contradict each other`},
		{"gemma", `"sliding_window":9`, `sliding_window = 9: the first gemma has no sliding window`},
		{"gemma2", `"hidden_activation":"relu"`,
			`hidden_activation = "relu": supported are silu, gelu_pytorch_tanh and gelu`},
		{"gemma2", `"attn_logit_softcapping":0`, `attn_logit_softcapping = 0: must be above zero, or null for none`},
		{"gemma2", `"final_logit_softcapping":-30`,
			`final_logit_softcapping = -30: must be above zero, or null for none`},
		{"gemma2", `"query_pre_attn_scalar":0`, `query_pre_attn_scalar = 0: must be above zero`},
		{"gemma2", `"sliding_window":null`, `sliding_window must be a number of tokens, 1 or more`},
		{"gemma2", `"sliding_window":9,"sliding_window_size":8`,
			`sliding_window_size = 8 and sliding_window = 9 contradict each other`},
		{"gemma2", `"sliding_window_pattern":6`,
			`sliding_window_pattern = 6: gemma2 has a window in every second layer`},
		{"gemma2", `"cache_implementation":"static"`, `cache_implementation = "static"`},
		{"gemma2", `"layer_types":["full_attention"]`, `layer_types names 1 layers, num_hidden_layers is 4`},
		{"gemma2", `"rope_parameters":{"full_attention":{"rope_type":"default"}}`,
			`rope_parameters.full_attention = {"rope_type":"default"}: rope type "default" has no such key`},
		{"gemma3_text", `"use_bidirectional_attention":true`,
			`use_bidirectional_attention = true: attention to later tokens is for embedding models`},
		{"gemma3_text", `"sliding_window_pattern":0`, `sliding_window_pattern = 0: must be 1 or more`},
		{"gemma3_text", `"rope_local_base_freq":0.5`, `rope_local_base_freq = 0.5: must be above 1`},
		{"gemma3_text",
			`"rope_local_base_freq":5,"rope_parameters":{"full_attention":{},"sliding_attention":{"rope_theta":6}}`,
			`rope_local_base_freq = 5 contradicts rope_parameters.sliding_attention.rope_theta = 6`},
		{"gemma3_text",
			`"rope_parameters":{"full_attention":{},"sliding_attention":{"rope_type":"linear","factor":0.5}}`,
			`rope_parameters.sliding_attention.factor = 0.5: must be at least 1`},
		{"gemma3_text", `"rope_parameters":{"full_attention":{},"sliding_attention":{},"third":{}}`,
			`rope_parameters.third = {}: unknown key`},
		{"gemma3", `"text_config":{"model_type":"gemma2"}`, `text_config.model_type = "gemma2": must be gemma3_text`},
		{"gemma3", `"text_config":{"final_logit_softcapping":30}`,
			`final_logit_softcapping = 30: transformers does not apply it in a model with images`},
		{"gemma3", ``, `text_config is missing`},
	} {
		_, err := parse(c.family, c.more)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.family, c.more, err, c.want)
		}
	}
}
