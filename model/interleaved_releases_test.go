package model_test

import (
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
)

// TestInterleavedReleases reads the config.json of GLM-4-0414 and ERNIE 4.5, in transformers 4's spelling and in 5's.
func TestInterleavedReleases(t *testing.T) {
	plain := model.RopeScaling{Type: "default"}
	glm := model.Config{
		ModelType: "glm4", VocabSize: 151552, HiddenSize: 4096, IntermediateSize: 13696, NumLayers: 40, NumHeads: 32,
		NumKVHeads: 2, HeadDim: 128,
		RMSNormEps: 1e-5, RopeTheta: 10000, RopeScaling: plain, PartialRotary: 0.5, Interleaved: true,
		MaxPositions: 32768, QKVBias: true, HiddenAct: "silu",
		EOS: []int{151329, 151336, 151338}, DType: "bfloat16",
	}
	large := glm
	large.QKVBias, large.HiddenSize, large.IntermediateSize, large.NumLayers, large.NumHeads = false,
		6144, 23040, 61, 48
	ernie := model.Config{
		ModelType: "ernie4_5", VocabSize: 103424, HiddenSize: 1024, IntermediateSize: 3072, NumLayers: 18, NumHeads: 16,
		NumKVHeads: 2, HeadDim: 128,
		RMSNormEps: 1e-5, RopeTheta: 500000, RopeScaling: plain, Interleaved: true, MaxPositions: 131072,
		TieEmbeddings: true, HiddenAct: "silu",
		BOS: []int{1}, EOS: []int{2}, DType: "bfloat16",
	}
	checkReleases(t, "interleaved_releases.json", []model.Config{glm, glm, large, ernie, ernie}, `"gate_scale": 2`,
		"gate_scale = 2: unknown key", nil)
}

func TestInterleavedFamilies(t *testing.T) {
	if c, err := parse("glm4", `"partial_rotary_factor":1.0`); err != nil || c.PartialRotary != 0 || !c.QKVBias ||
		c.OBias || c.HeadDim != 128 {
		t.Errorf("glm4: %+v, %v", c, err)
	}
	if c, err := parse("glm4", `"hidden_act":"silu"`); err != nil || c.PartialRotary != 0.5 {
		t.Errorf("glm4 without a factor: %+v, %v", c, err)
	}
	if c, err := parse("ernie4_5", `"use_bias":true`); err != nil || !c.QKVBias || !c.OBias || !c.MLPBias ||
		!c.TieEmbeddings {
		t.Errorf("ernie4_5: %+v, %v", c, err)
	}
	for _, c := range []struct{ family, more, want string }{
		{"glm4", `"partial_rotary_factor":1.5`, `partial_rotary_factor = 1.5: must be above 0 and at most 1`},
		{"glm4",
			`"rope_parameters":{"rope_type":"default","rope_theta":10000,"partial_rotary_factor":0.25},"partial_rotary_factor":0.5`, `contradicts partial_rotary_factor = 0.5`},
		{"glm4", `"hidden_act":"gelu"`, `hidden_act = "gelu"`},
		{"glm4", `"mlp_bias":true`, `mlp_bias = true: glm4 has no biases in its MLP`},
		{"glm4", `"sliding_window":8`, `sliding_window = 8: unknown key`},
		{"ernie4_5", `"attention_bias":true`, `attention_bias = true: ernie4_5 says it by use_bias`},
		{"ernie4_5", `"architectures":["LlamaForCausalLM"]`, `a ernie4_5 checkpoint must be a Ernie4_5ForCausalLM`},
		{"ernie4_5", `"auto_map":{"AutoModelForCausalLM":"modeling_x.XForCausalLM"}`,
			`auto_map names modeling_x.XForCausalLM`},
	} {
		if _, err := parse(c.family, c.more); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.family, c.more, err, c.want)
		}
	}
}
