package model_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
)

// TestReleasesWithExperts reads the config.json of releases, in transformers 4's spelling and in 5's.
func TestReleasesWithExperts(t *testing.T) {
	plain := model.RopeScaling{Type: "default"}
	mixtral := model.Config{
		ModelType: "mixtral", VocabSize: 32000, HiddenSize: 4096, IntermediateSize: 14336, NumLayers: 32, NumHeads: 32,
		NumKVHeads: 8, HeadDim: 128,
		RMSNormEps: 1e-5, RopeTheta: 1e6, RopeScaling: plain, MaxPositions: 32768, HiddenAct: "silu", BOS: []int{1},
		EOS: []int{2}, DType: "bfloat16",
		Experts: 8, ExpertsPerToken: 2, ExpertSize: 14336, NormTopK: true,
	}
	qwen3 := model.Config{
		ModelType: "qwen3_moe", VocabSize: 151936, HiddenSize: 2048, IntermediateSize: 6144, NumLayers: 48,
		NumHeads: 32, NumKVHeads: 4, HeadDim: 128,
		RMSNormEps: 1e-6, RopeTheta: 1e6, RopeScaling: plain, MaxPositions: 40960, HiddenAct: "silu",
		BOS: []int{151643}, EOS: []int{151645}, DType: "bfloat16",
		QKNorm: true, Experts: 128, ExpertsPerToken: 8, ExpertSize: 768, NormTopK: true, ExpertStep: 1,
		DenseLayers: []int{},
	}
	large := qwen3
	large.HiddenSize, large.IntermediateSize, large.NumLayers, large.NumHeads, large.RopeTheta, large.MaxPositions,
		large.ExpertSize = 4096, 12288, 94, 64, 5e6, 262144, 1536
	gptOSS := model.Config{
		ModelType: "gpt_oss", VocabSize: 201088, HiddenSize: 2880, IntermediateSize: 2880, NumLayers: 24, NumHeads: 64,
		NumKVHeads: 8, HeadDim: 64,
		RMSNormEps: 1e-5, RopeTheta: 150000, RopeScaling: model.RopeScaling{Type: "yarn", Factor: 32, BetaFast: 32,
			BetaSlow: 1, OriginalMaxPositions: 4096, NoTruncate: true},
		MaxPositions: 131072, HiddenAct: "silu", EOS: []int{200002}, DType: "bfloat16", QKVBias: true, OBias: true,
		SlidingWindow: 128,
		LayerTypes:    slices.Repeat([]string{model.SlidingAttention, model.FullAttention}, 12), Experts: 32,
		ExpertsPerToken: 4, ExpertSize: 2880, NormTopK: true,
	}
	released := gptOSS
	released.Quantization = &model.Quantization{Method: model.MXFP4, Bits: 4, Type: "mxfp4"}
	larger := released
	larger.NumLayers, larger.Experts, larger.LayerTypes = 36, 128, slices.Repeat([]string{model.SlidingAttention,
		model.FullAttention}, 18)
	qwen2 := model.Config{
		ModelType: "qwen2_moe", VocabSize: 151936, HiddenSize: 2048, IntermediateSize: 5632, NumLayers: 24,
		NumHeads: 16, NumKVHeads: 16, HeadDim: 128,
		RMSNormEps: 1e-6, RopeTheta: 1e6, RopeScaling: plain, MaxPositions: 8192, HiddenAct: "silu", BOS: []int{151643},
		EOS: []int{151643}, DType: "bfloat16",
		QKVBias: true, Experts: 60, ExpertsPerToken: 4, ExpertSize: 1408, SharedSize: 5632, ExpertStep: 1,
	}
	qwen2New := qwen2
	qwen2New.DenseLayers = []int{}
	qwen57 := qwen2
	qwen57.HiddenSize, qwen57.IntermediateSize, qwen57.NumLayers, qwen57.NumHeads, qwen57.NumKVHeads = 3584,
		18944, 28, 28, 4
	qwen57.MaxPositions, qwen57.Experts, qwen57.ExpertsPerToken, qwen57.ExpertSize, qwen57.SharedSize = 131072,
		64, 8, 2560, 20480
	want := []model.Config{mixtral, mixtral, qwen3, qwen3, large, gptOSS, released, larger, qwen2, qwen2New, qwen57}
	checkReleases(t, "experts_releases.json", want, `"n_shared_experts": 2`,
		"n_shared_experts = 2: this part of a mixture of experts is not supported", nil)
}

func TestExpertOptions(t *testing.T) {
	layers := func(c model.Config) any {
		var with []int
		for i := range c.NumLayers {
			if c.ExpertLayer(i) {
				with = append(with, i)
			}
		}
		return with
	}
	for _, c := range []struct {
		family, more string
		get          func(model.Config) any
		want         any
	}{
		{"mixtral", ``, func(c model.Config) any {
			return []any{c.Experts, c.ExpertsPerToken, c.NormTopK, c.RMSNormEps, c.RopeTheta, c.SlidingWindow,
				c.RouterAuxLoss}
		}, []any{8, 2, true, 1e-5, 1e6, 0, 0.0}},
		{"mixtral", `"num_local_experts":4,"num_experts_per_tok":1,"sliding_window":9`, func(c model.Config) any {
			return []int{c.Experts, c.ExpertsPerToken, c.Window(0)}
		}, []int{4, 1, 9}},
		{"mixtral", `"output_router_logits":true`, func(c model.Config) any { return c.RouterAuxLoss }, 0.001},
		{"mixtral", `"output_router_logits":true,"router_aux_loss_coef":0.5`, func(c model.Config) any {
			return c.RouterAuxLoss
		}, 0.5},
		{"qwen3_moe", ``, func(c model.Config) any {
			return []any{c.Experts, c.ExpertsPerToken, c.ExpertSize, c.NormTopK, c.QKNorm, c.QKVBias, c.SlidingWindow}
		}, []any{128, 8, 768, false, true, false, 0}},
		{"gpt_oss", ``, func(c model.Config) any {
			return []any{c.HeadDim, c.Experts, c.ExpertsPerToken, c.QKVBias, c.OBias, c.RMSNormEps, c.RopeTheta,
				c.Window(0), c.Window(1)}
		}, []any{64, 128, 4, true, true, 1e-5, 150000.0, 128, 0}},
		{"gpt_oss",
			`"sliding_window":7,"layer_types":["full_attention","sliding_attention","full_attention","full_attention"]`,
			func(c model.Config) any {
				return []int{c.Window(0), c.Window(1), c.Window(2)}
			}, []int{0, 7, 0}},
		{"gpt_oss", `"output_router_logits":true`, func(c model.Config) any { return c.RouterAuxLoss }, 0.9},
		{"gpt_oss", `"output_router_logits":true,"router_aux_loss_coef":0.25`, func(c model.Config) any {
			return c.RouterAuxLoss
		}, 0.25},
		{"gpt_oss", `"router_aux_loss_coef":0.25`, func(c model.Config) any { return c.RouterAuxLoss }, 0.0},
		{"gpt_oss", ``, func(c model.Config) any { return c.RopeScaling }, // absent: transformers' default; null: none
			model.RopeScaling{Type: "yarn", Factor: 32, OriginalMaxPositions: 4096, BetaFast: 32, BetaSlow: 1,
				NoTruncate: true}},
		{"gpt_oss", `"rope_scaling":null`, func(c model.Config) any {
			return c.RopeScaling
		}, model.RopeScaling{Type: "default"}},
		{"gpt_oss", `"rope_parameters":{"rope_type":"default","rope_theta":150000}`, func(c model.Config) any {
			return c.RopeScaling
		}, model.RopeScaling{Type: "default"}},
		{"qwen3_moe", ``, layers, []int{0, 1, 2, 3}},
		{"qwen3_moe", `"decoder_sparse_step":2`, layers, []int{1, 3}},
		{"qwen3_moe", `"decoder_sparse_step":2,"mlp_only_layers":[3,0]`, layers, []int{1}},
		{"qwen3_moe", `"mlp_only_layers":[2,9]`, layers, []int{0, 1, 3}},
		{"qwen2_moe", ``, func(c model.Config) any {
			return []any{c.Experts, c.ExpertsPerToken, c.ExpertSize, c.SharedSize, c.NormTopK, c.QKVBias, c.OBias,
				c.SlidingWindow}
		}, []any{60, 4, 1408, 5632, false, true, false, 0}},
		{"qwen2_moe",
			`"qkv_bias":false,"decoder_sparse_step":2,"mlp_only_layers":[3],"use_sliding_window":true,"sliding_window":9`, func(c model.Config) any {
				return []any{c.QKVBias, c.ExpertLayer(1), c.ExpertLayer(3), c.Window(0)}
			}, []any{false, true, false, 9}},
		{"qwen2_moe",
			`"use_sliding_window":true,"sliding_window":9,"layer_types":["full_attention","sliding_attention","full_attention","full_attention"]`, func(c model.Config) any {
				return []int{c.Window(0), c.Window(1), c.Window(2)} // as transformers 5 writes it
			}, []int{0, 9, 0}},
		{"qwen3_moe", `"num_experts":0`, layers, []int(nil)},
		{"qwen3_moe", `"attention_bias":true,"use_sliding_window":true,"sliding_window":7`, func(c model.Config) any {
			return []any{c.QKVBias, c.OBias, c.Window(0), c.Window(3)}
		}, []any{true, true, 7, 7}},
		{"qwen3_moe", `"sliding_window":7`, func(c model.Config) any { return c.Window(0) }, 0},
	} {
		got, err := parse(c.family, c.more)
		if err != nil {
			t.Errorf("%s %s: %v", c.family, c.more, err)
		} else if v := c.get(got); !reflect.DeepEqual(v, c.want) {
			t.Errorf("%s %s: %v, expected %v", c.family, c.more, v, c.want)
		}
	}
}

func TestExpertsRefuse(t *testing.T) {
	for _, c := range []struct{ family, more, want string }{
		{"mixtral", `"num_local_experts":0`, `num_local_experts = 0: must be 1 to 1024`},
		{"mixtral", `"num_experts_per_tok":9`, `num_experts_per_tok = 9: must be 1 to 64, and at most the 8 experts`},
		{"mixtral", `"num_local_experts":4,"num_experts":8`, `num_experts = 8, but num_local_experts is 4`},
		{"mixtral", `"router_jitter_noise":0.1`,
			`router_jitter_noise = 0.1: training here has no noise in the base model`},
		{"mixtral", `"router_aux_loss_coef":-1`, `router_aux_loss_coef = -1: must be 0 to 1e6`},
		{"mixtral", `"norm_topk_prob":false`,
			`norm_topk_prob = false: this part of a mixture of experts is not supported`},
		{"mixtral", `"attention_bias":true`, `attention_bias = true: mixtral has no biases`},
		{"gpt_oss", `"swiglu_limit":5.0`, `swiglu_limit = 5.0: gpt_oss limits what its experts gate at 7`},
		{"gpt_oss", `"experts_per_token":2`, `experts_per_token = 2, but num_experts_per_tok is 4`},
		{"gpt_oss", `"attention_bias":false`, `attention_bias = false: gpt_oss always has biases in its attention`},
		{"gpt_oss", `"quantization_config":{"quant_method":"mxfp4","bits":3}`,
			`quantization_config.bits = 3: unknown key`},
		{"mixtral", `"quantization_config":{"quant_method":"mxfp4"}`,
			`quantization_config = {"quant_method":"mxfp4"}: MXFP4 is read of gpt_oss' experts alone; use the model`},
		{"qwen3_moe", `"decoder_sparse_step":0`, `decoder_sparse_step = 0: must be 1 or more`},
		{"qwen3_moe", `"moe_intermediate_size":0`, `moe_intermediate_size = 0: must be 1 to`},
		{"qwen3_moe", `"num_experts":2000`, `num_experts = 2000: must be 1 to 1024`},
		{"qwen3_moe", `"shared_expert_intermediate_size":64`,
			`shared_expert_intermediate_size = 64: qwen3_moe has no shared expert`},
		{"qwen2_moe", `"shared_expert_intermediate_size":0`, `shared_expert_intermediate_size = 0: must be 1 or more`},
		{"qwen2_moe",
			`"sliding_window":9,"layer_types":["full_attention","sliding_attention","full_attention","full_attention"]`,
			`layer_types[1] = "sliding_attention" but no window is in use (use_sliding_window, sliding_window)`},
		{"llama", `"num_experts":8`, `num_experts = 8: this part of a mixture of experts is not supported`},
	} {
		_, err := parse(c.family, c.more)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.family, c.more, err, c.want)
		}
	}
}
