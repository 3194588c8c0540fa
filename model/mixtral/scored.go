package mixtral

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Scored holds the names of GLM-4.5's mixtures.
var Scored = Names{Block: "mlp", Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Fused: "mlp",
	Correction: "gate.e_score_correction_bias", Shared: "shared_experts"}

// BuildScored applies GLM-4.5's mixture of experts.
func BuildScored(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, Scored) }

// GLM describes config.json of GLM-4.5, 4.6 and 4.7: the first layers have an MLP, and half of every head is rotated.
// Absent keys have the values of GLM-4.5-Air.
var GLM = model.Dialect{Architecture: "Glm4MoeForCausalLM", PartialRotary: true, Defaults: func(c *model.Config) {
	c.RMSNormEps, c.PartialRotary, c.NumKVHeads = 1e-5, 0.5, 8
	c.Routing = model.Routing{Scored: true, Corrected: true, Groups: 1, TopGroups: 1, Best: 2, Epsilon: 1e-20, Scale: 1}
}, Read: func(c *model.Config, k *model.Keys) {
	k.Bool("attention_bias", &c.QKVBias)
	k.Bool("use_qk_norm", &c.QKNorm)
	c.Experts = 128
	c.ReadExperts(k, 8, "n_routed_experts", "num_local_experts")
	c.ExpertSize, c.NormTopK = 1408, true
	k.Int("moe_intermediate_size", &c.ExpertSize)
	c.ReadRouting(k)
	c.ReadShared(k, "n_shared_experts", 1)
	c.ReadFirstDense(k, "first_k_dense_replace", 1)
	k.Drop("num_nextn_predict_layers") // layers behind the model's own, which it does not use
	k.Drop("num_mtp_layers")
}, Fixed: map[string]model.Fixed{
	"mlp_bias":     {Value: false, Why: "glm4_moe has no biases in its MLP"},
	"scoring_func": {Value: "sigmoid", Why: "glm4_moe scores by sigmoids"},
	"topk_method":  {Value: "noaux_tc", Why: "glm4_moe corrects the choice of experts by a bias"},
}}

// MiniMaxNames holds the names of MiniMax-M2's mixtures, ErnieNames those of ERNIE 4.5's.
var (
	MiniMaxNames = Names{Block: "block_sparse_moe", Gate: "w1", Up: "w3", Down: "w2", Fused: "mlp",
		Correction: "e_score_correction_bias"}
	ErnieNames = Names{Block: "mlp", Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Fused: "mlp",
		Correction:      "moe_statics.e_score_correction_bias",
		FusedCorrection: "gate.moe_statics.e_score_correction_bias", Shared: "shared_experts"}
)

// BuildMiniMax applies MiniMax-M2.
func BuildMiniMax(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	return build(n, c, in, MiniMaxNames)
}

// BuildErnie applies ERNIE 4.5's mixture of experts.
func BuildErnie(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, ErnieNames) }

// MiniMax describes config.json of MiniMax-M2: all layers have experts, and one norm goes over all queries and one over
// all keys of a token. A part of every head is rotated: partial_rotary_factor of it, or rotary_dim columns.
var MiniMax = model.Dialect{Architecture: "MiniMaxM2ForCausalLM", PartialRotary: true, Defaults: func(c *model.Config) {
	c.RopeTheta, c.NumKVHeads, c.HeadDim = 5e6, 8, 128
	c.Routing = model.Routing{Scored: true, Corrected: true, Scale: 1}
}, Read: func(c *model.Config, k *model.Keys) {
	c.QKNorm, c.WholeQKNorm = true, true
	columns := 0
	if k.Int("rotary_dim", &columns) && c.HeadDim > 0 {
		if columns < 2 || columns > c.HeadDim {
			k.Fail("rotary_dim", "= %d: must be 2 to head_dim %d", columns, c.HeadDim)
		}
		if c.PartialRotary = float64(columns) / float64(c.HeadDim); columns == c.HeadDim {
			c.PartialRotary = 0
		}
	}
	c.Experts = 256
	c.ReadExperts(k, 8, "num_local_experts", "num_experts")
	c.ExpertSize, c.NormTopK = c.IntermediateSize, true
	for _, key := range []string{"layernorm_full_attention_beta", "layernorm_linear_attention_beta",
		"layernorm_mlp_beta", "mlp_intermediate_size", "mtp_transformer_layers", "num_mtp_modules", "shared_moe_mode",
		"use_mtp"} {
		k.Drop(key) // of earlier models, and of layers for multi-token prediction
	}
	if kinds, ok := k.Ints("attn_type_list"); ok {
		for i, kind := range kinds {
			if kind != 1 {
				k.Fail("attn_type_list", "[%d] = %d: only softmax attention (1) is supported", i, kind)
			}
		}
	}
	k.OwnCode("MiniMaxM2ForCausalLM")
}, Fixed: map[string]model.Fixed{
	"attention_bias":           {Value: false, Why: "minimax_m2 has no biases"},
	"mlp_bias":                 {Value: false, Why: "minimax_m2 has no biases"},
	"router_jitter_noise":      {Value: 0.0, Why: dropout},
	"scoring_func":             {Value: "sigmoid", Why: "minimax_m2 scores by sigmoids"},
	"use_routing_bias":         {Value: true, Why: "minimax_m2 corrects the choice of experts by a bias"},
	"use_qk_norm":              {Value: true, Why: "minimax_m2 always norms queries and keys"},
	"qk_norm_type":             {Value: "per_layer", Why: "minimax_m2 has one norm over all heads"},
	"shared_intermediate_size": {Value: 0.0, Why: "minimax_m2 has no shared expert"},
	"sliding_window":           {Value: nil, Why: "minimax_m2 has no windows"},
}}

// Ernie describes config.json of ERNIE 4.5's mixtures: scores are the softmax, corrections only steer the choice.
// Absent keys have the values of ERNIE-4.5-21B-A3B.
var Ernie = model.Dialect{Architecture: "Ernie4_5_MoeForCausalLM", Defaults: func(c *model.Config) {
	c.RMSNormEps, c.RopeTheta, c.NumKVHeads, c.TieEmbeddings, c.Interleaved = 1e-5, 500000, 4, true, true
	c.Routing = model.Routing{Scored: true, Softmax: true, Corrected: true, CorrectionRow: true, Scale: 1}
}, Read: func(c *model.Config, k *model.Keys) {
	c.Experts, c.NormTopK, c.Routing.Least = 64, true, 1e-12
	c.ReadExperts(k, 6, "moe_num_experts", "num_experts", "num_local_experts")
	k.Int("moe_k", &c.ExpertsPerToken)
	c.ExpertSize = 1536
	k.Int("moe_intermediate_size", &c.ExpertSize)
	c.ReadShared(k, "moe_num_shared_experts", 2)
	k.Float("moe_norm_min", &c.Routing.Least)
	first, last, every := 1, -1, 1
	k.Int("moe_layer_start_index", &first)
	k.Int("moe_layer_end_index", &last)
	if k.Int("moe_layer_interval", &every); every < 1 {
		k.Fail("moe_layer_interval", "= %d: must be 1 or more", every)
	}
	c.ExpertStep = every
	for i := range min(c.NumLayers, model.MaxLayers) {
		if i < first || last >= 0 && i > last {
			c.DenseLayers = append(c.DenseLayers, i)
		}
	}
	for _, key := range []string{"moe_capacity", "moe_gate", "moe_use_aux_free", "num_nextn_predict_layers"} {
		k.Drop(key) // capacities are of its training; layers for multi-token prediction are left out
	}
	k.OwnCode("Ernie4_5_MoeForCausalLM")
}, Fixed: map[string]model.Fixed{
	"use_bias":       {Value: false, Why: "biases of ernie4_5_moe are not supported"},
	"attention_bias": {Value: false, Why: "ernie4_5_moe has no biases"},
	"mlp_bias":       {Value: false, Why: "ernie4_5_moe has no biases"},
}}
