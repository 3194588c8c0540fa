package model_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
)

// TestMoreReleases reads the config.json of Mistral 3, OLMo 3, Seed-OSS, Qwen3-Coder and a distilled Qwen3, in
// transformers 4's spelling and in 5's.
func TestMoreReleases(t *testing.T) {
	plain := model.RopeScaling{Type: "default"}
	mistral := model.Config{
		ModelType: "mistral3", Multimodal: true, VocabSize: 131072, HiddenSize: 5120, IntermediateSize: 32768,
		NumLayers: 40, NumHeads: 32, NumKVHeads: 8,
		HeadDim: 128, RMSNormEps: 1e-5, RopeTheta: 1e9, RopeScaling: plain, MaxPositions: 131072, HiddenAct: "silu",
		DType: "bfloat16",
	}
	olmo3 := model.Config{
		ModelType: "olmo3", VocabSize: 100278, HiddenSize: 4096, IntermediateSize: 11008, NumLayers: 32, NumHeads: 32,
		NumKVHeads: 32, HeadDim: 128,
		RMSNormEps: 1e-6, RopeTheta: 5e5, RopeScaling: model.RopeScaling{Type: "yarn", Factor: 8,
			OriginalMaxPositions: 8192, AttentionFactor: 1.2079441541679836, BetaFast: 32, BetaSlow: 1},
		MaxPositions: 65536, SlidingWindow: 4096, LayerTypes: patterned(32, 4), LocalRopeTheta: 5e5,
		LocalRopeScaling: plain, HiddenAct: "silu", EOS: []int{100257},
	}
	olmo5 := olmo3
	olmo5.DType = "bfloat16"
	seed := model.Config{
		ModelType: "seed_oss", Unapplied: []string{"attention_dropout 0.1", "residual_dropout 0.1"}, VocabSize: 155136,
		HiddenSize: 5120, IntermediateSize: 27648, NumLayers: 64, NumHeads: 80, NumKVHeads: 8, HeadDim: 128,
		RMSNormEps: 1e-6, RopeTheta: 1e7, RopeScaling: plain, MaxPositions: 524288, QKVBias: true, HiddenAct: "silu",
		BOS: []int{0}, EOS: []int{2}, DType: "bfloat16",
	}
	coder := model.Config{
		ModelType: "qwen3_moe", VocabSize: 151936, HiddenSize: 2048, IntermediateSize: 5472, NumLayers: 48,
		NumHeads: 32, NumKVHeads: 4, HeadDim: 128,
		RMSNormEps: 1e-6, RopeTheta: 1e7, RopeScaling: plain, MaxPositions: 262144, QKNorm: true, HiddenAct: "silu",
		Experts: 128, ExpertsPerToken: 8, ExpertSize: 768, NormTopK: true, ExpertStep: 1, DenseLayers: []int{},
		EOS: []int{151645}, DType: "bfloat16",
	}
	r1 := model.Config{ // attn_factor, which transformers does not read, changes nothing
		ModelType: "qwen3", VocabSize: 151936, HiddenSize: 4096, IntermediateSize: 12288, NumLayers: 36, NumHeads: 32,
		NumKVHeads: 8, HeadDim: 128,
		RMSNormEps: 1e-6, RopeTheta: 1e6, RopeScaling: model.RopeScaling{Type: "yarn", Factor: 4,
			OriginalMaxPositions: 32768}, MaxPositions: 131072, QKNorm: true,
		HiddenAct: "silu", BOS: []int{151643}, EOS: []int{151645}, DType: "bfloat16",
	}
	checkReleases(t, "more_releases.json", []model.Config{mistral, mistral, olmo3, olmo5, seed, coder, r1},
		`"gate_scale": 2`, "gate_scale = 2: unknown key", nil)
}

func TestMoreFamilies(t *testing.T) {
	c, err := parse("olmo3", `"sliding_window":9`)
	if _, own := c.LocalRope(); err != nil || own || c.SlidingWindow != 9 || !slices.Equal(c.LayerTypes,
		patterned(4, 4)) {
		t.Errorf("olmo3: %+v, %v", c, err)
	}
	c, err = parse("olmo3",
		`"rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":500},"sliding_attention":{"rope_type":"default","rope_theta":600}}`)
	if local, own := c.LocalRope(); err != nil || !own || local.RopeTheta != 600 ||
		local.RopeScaling.Type != "default" || c.RopeTheta != 500 {
		t.Errorf("olmo3 with a base of its own in layers with a window: %+v, %v", c, err)
	}
	for _, c := range []struct{ family, more, want string }{
		{"olmo3", `"sliding_window":null`, `sliding_window must be a number of tokens, 1 or more`},
		{"olmo3", `"layer_types":["full_attention"]`, `layer_types names 1 layers, num_hidden_layers is 4`},
		{"olmo3", `"clip_qkv":8.0`, `clip_qkv = 8.0: this change to the attention`},
		{"olmo3",
			`"rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":500},"sliding_attention":{"rope_type":"linear","factor":2,"rope_theta":500}}`,
			`rope_parameters.sliding_attention has rope_type = "linear": only the plain rotation is supported there`},
		{"qwen3_moe", `"qkv_bias":true`, `qkv_bias = true: qwen3_moe says it by attention_bias`},
		{"qwen3_moe", `"use_qk_norm":false`, `use_qk_norm = false: qwen3_moe always norms queries and keys`},
		{"seed_oss", `"residual_dropout":1.5`, `residual_dropout = 1.5: must be at least 0 and below 1`},
		{"seed_oss", `"sliding_window":8`, `sliding_window = 8: unknown key`},
	} {
		if _, err := parse(c.family, c.more); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.family, c.more, err, c.want)
		}
	}
}
