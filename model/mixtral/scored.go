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
	c.ReadShared(k)
	c.ReadFirstDense(k, "first_k_dense_replace", 1)
	k.Drop("num_nextn_predict_layers") // layers behind the model's own, which it does not use
	k.Drop("num_mtp_layers")
}, Fixed: map[string]model.Fixed{
	"mlp_bias":     {Value: false, Why: "glm4_moe has no biases in its MLP"},
	"scoring_func": {Value: "sigmoid", Why: "glm4_moe scores by sigmoids"},
	"topk_method":  {Value: "noaux_tc", Why: "glm4_moe corrects the choice of experts by a bias"},
}}
