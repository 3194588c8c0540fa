package mixtral

import (
	"slices"

	"github.com/tierlora/tierlora/model"
)

const dropout = "training here has no noise in the base model"

// Mixtral describes config.json of a Mixtral model. Absent keys have the values of Mixtral 8x7B.
var Mixtral = model.Dialect{Architecture: "MixtralForCausalLM", KVHeadsOptional: true, Defaults: func(c *model.Config) {
	c.RMSNormEps, c.RopeTheta = 1e-5, 1e6
}, Read: func(c *model.Config, k *model.Keys) {
	if !k.Given("num_key_value_heads") {
		c.NumKVHeads = 8
	}
	c.Experts = 8
	c.ReadExperts(k, 2, "num_local_experts", "num_experts")
	if c.Experts < 1 {
		k.Fail("num_local_experts", "= %d: must be 1 to %d", c.Experts, model.MaxExperts)
	}
	c.ExpertSize, c.NormTopK = c.IntermediateSize, true
	k.Int("sliding_window", &c.SlidingWindow)
}, Fixed: map[string]model.Fixed{
	"attention_bias":      {Value: false, Why: "mixtral has no biases"},
	"router_jitter_noise": {Value: 0.0, Why: dropout},
}}

// Qwen3 describes config.json of Qwen3's mixture of experts.
var Qwen3 = model.Dialect{Architecture: "Qwen3MoeForCausalLM", KVHeadsOptional: true, Read: func(c *model.Config,
	k *model.Keys) {
	c.QKNorm = true
	if !k.Given("num_key_value_heads") {
		c.NumKVHeads = 4
	}
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
	c.Experts = 128
	c.ReadExperts(k, 8, "num_experts", "num_local_experts")
	c.ExpertSize = 768
	k.Int("moe_intermediate_size", &c.ExpertSize)
	k.Bool("norm_topk_prob", &c.NormTopK)
	model.ReadDenseLayers(c, k)
	windows(c, k)
}, Fixed: map[string]model.Fixed{ // set in Qwen3-Coder's files
	"qkv_bias":                        {Value: false, Why: "qwen3_moe says it by attention_bias"},
	"use_qk_norm":                     {Value: true, Why: "qwen3_moe always norms queries and keys"},
	"shared_expert_intermediate_size": {Value: 0.0, Why: "qwen3_moe has no shared expert"},
}}

// Qwen2 describes config.json of Qwen1.5's and Qwen2's mixtures of experts, which have a shared expert. Absent keys
// have the values of Qwen1.5-MoE-A2.7B.
var Qwen2 = model.Dialect{Architecture: "Qwen2MoeForCausalLM", KVHeadsOptional: true, Read: func(c *model.Config,
	k *model.Keys) {
	if !k.Given("num_key_value_heads") {
		c.NumKVHeads = 16
	}
	c.QKVBias = true
	k.Bool("qkv_bias", &c.QKVBias)
	if c.HeadDim%2 == 0 && c.HeadDim*c.NumHeads != c.HiddenSize {
		k.Fail("head_dim", "= %d times num_attention_heads %d is not hidden_size %d, which qwen2_moe asks for",
			c.HeadDim, c.NumHeads, c.HiddenSize)
	}
	c.Experts = 60
	c.ReadExperts(k, 4, "num_experts", "num_local_experts")
	model.ReadExpertSizes(c, k, 1408, 5632)
	k.Bool("norm_topk_prob", &c.NormTopK)
	model.ReadDenseLayers(c, k)
	first := 28
	k.Int("max_window_layers", &first)
	windows(c, k)
	// transformers 5 writes which layers have the window; in transformers 4 all do.
	c.LayerTypes = k.Texts("layer_types")
	// the default of transformers 5
	if c.LayerTypes == nil && c.SlidingWindow > 0 && k.Five() && c.NumLayers > 0 && c.NumLayers <= model.MaxLayers {
		for i := range c.NumLayers {
			kind := model.FullAttention
			if i%2 == 0 && i < first {
				kind = model.SlidingAttention
			}
			c.LayerTypes = append(c.LayerTypes, kind)
		}
	}
	if i := slices.Index(c.LayerTypes, model.SlidingAttention); i >= 0 && c.SlidingWindow == 0 {
		k.Fail("layer_types", "[%d] = %q but no window is in use (use_sliding_window, sliding_window)", i,
			model.SlidingAttention)
	} else if c.LayerTypes != nil && i < 0 {
		c.SlidingWindow, c.LayerTypes = 0, nil
	}
}, Fixed: map[string]model.Fixed{
	"attention_bias": {Value: true, Why: "qwen2_moe says it by qkv_bias"},
}}

// windows reads one window for all layers, which applies with use_sliding_window. Nothing reads max_window_layers.
func windows(c *model.Config, k *model.Keys) {
	use, window := false, 4096
	k.Bool("use_sliding_window", &use)
	given := k.Has("sliding_window")
	if !k.Int("sliding_window", &window) && given {
		window = 0 // null
	}
	if use {
		c.SlidingWindow = window
	}
	k.Drop("max_window_layers")
}
