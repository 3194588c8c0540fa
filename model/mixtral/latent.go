package mixtral

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// latent returns the attention of a configuration with latent attention.
func latent(c model.Config, table *nn.Value) nn.Latent {
	l := c.Latent
	return nn.Latent{Heads: c.NumHeads, QueryRank: l.QueryRank, KVRank: l.KVRank, Own: l.Own, Rotated: l.Rotated,
		Value: l.Value, Bias: c.QKVBias, Scale: c.AttentionScale, RoPE: table, Interleaved: c.Interleaved}
}

// corrected is the routing of DeepSeek-V3 and its relatives.
var corrected = model.Routing{Scored: true, Corrected: true, Groups: 1, TopGroups: 1, Best: 2, Epsilon: 1e-20, Scale: 1}

// GLMLite describes config.json of GLM-4.7-Flash: latent attention, and GLM-4.5's mixtures. Absent keys have its
// values.
var GLMLite = model.Dialect{Architecture: "Glm4MoeLiteForCausalLM", KVHeadsOptional: true,
	Defaults: func(c *model.Config) {
		c.RMSNormEps, c.HeadDim = 1e-5, 64
		c.Routing = corrected
		c.Routing.Scale = 1.8
	}, Read: func(c *model.Config, k *model.Keys) {
		readDeepSeek(c, k, 64, 1536, 4, model.Latent{QueryRank: 768, KVRank: 512, Own: 192, Rotated: 64, Value: 256})
		c.NormTopK = true
		c.ReadRouting(k)
		k.Int("moe_intermediate_size", &c.ExpertSize)
		kinds := k.Texts("mlp_layer_types")
		if kinds == nil {
			c.ReadFirstDense(k, "first_k_dense_replace", 1)
			return
		}
		k.Drop("first_k_dense_replace") // transformers reads the other key
		if len(kinds) != c.NumLayers {
			k.Fail("mlp_layer_types", "names %d layers, num_hidden_layers is %d", len(kinds), c.NumLayers)
		}
		for i, kind := range kinds {
			switch kind {
			case "dense":
				c.DenseLayers = append(c.DenseLayers, i)
			case "sparse":
			default:
				k.Fail("mlp_layer_types", "[%d] = %q: must be dense or sparse", i, kind)
			}
		}
	}, Fixed: deepSeekFixed("sigmoid", "noaux_tc")}

// DeepSeekV3 describes config.json of DeepSeek-V3: scores by sigmoids, with a correction and groups. Absent keys have
// its values.
var DeepSeekV3 = model.Dialect{Architecture: "DeepseekV3ForCausalLM", KVHeadsOptional: true,
	Defaults: func(c *model.Config) {
		c.HeadDim = 64
		c.Routing = corrected
		c.Routing.Groups, c.Routing.TopGroups, c.Routing.Scale = 8, 4, 2.5
	}, Read: func(c *model.Config, k *model.Keys) {
		readDeepSeek(c, k, 256, 2048, 8, model.Latent{QueryRank: 1536, KVRank: 512, Own: 128, Rotated: 64, Value: 128})
		c.NormTopK = true
		c.ReadRouting(k)
		c.ReadFirstDense(k, "first_k_dense_replace", 3)
		k.OwnCode("DeepseekV3ForCausalLM")
	}, Fixed: deepSeekFixed("sigmoid", "noaux_tc")}

// DeepSeekV2 describes config.json of DeepSeek-V2 and V2-Lite: weights are the softmax, and of groups the best expert
// counts. Absent keys have transformers' values.
var DeepSeekV2 = model.Dialect{Architecture: "DeepseekV2ForCausalLM", KVHeadsOptional: true,
	Defaults: func(c *model.Config) {
		c.HeadDim = 64
		c.Routing = model.Routing{Scored: true, Softmax: true, Groups: 1, TopGroups: 1, Best: 1, Scale: 1}
	}, Read: func(c *model.Config, k *model.Keys) {
		readDeepSeek(c, k, 64, 1407, 0, model.Latent{QueryRank: 1536, KVRank: 512, Own: 128, Rotated: 64, Value: 128})
		c.Interleaved = true
		method := "greedy"
		switch k.Text("topk_method", &method); method {
		case "greedy":
			k.Drop("n_group")
			k.Drop("topk_group")
		case "group_limited_greedy":
			k.Int("n_group", &c.Routing.Groups)
			k.Int("topk_group", &c.Routing.TopGroups)
		default:
			k.Fail("topk_method", "= %q: must be greedy or group_limited_greedy", method)
		}
		k.Float("routed_scaling_factor", &c.Routing.Scale)
		c.ReadFirstDense(k, "first_k_dense_replace", 0)
		k.OwnCode("DeepseekV2ForCausalLM")
	}, Fixed: func() map[string]model.Fixed {
		fixed := deepSeekFixed("softmax", "")
		fixed["norm_topk_prob"] = model.Fixed{Value: false,
			Why: "transformers never divides deepseek_v2's weights by their sum"}
		delete(fixed, "topk_method")
		return fixed
	}()}

// readDeepSeek reads the keys that models with latent attention share: its sizes, and those of their experts. experts,
// size and perToken are the values of absent keys: experts of a layer, an expert's intermediate size, and experts of a
// token.
func readDeepSeek(c *model.Config, k *model.Keys, experts, size, perToken int, sizes model.Latent) {
	k.Bool("attention_bias", &c.QKVBias)
	c.ReadLatent(k, sizes)
	c.Interleaved = true
	k.Bool("rope_interleave", &c.Interleaved)
	c.Experts = experts
	names, shared := []string{"n_routed_experts", "num_local_experts"}, 1
	if c.ModelType == "deepseek_v2" {
		names[1], shared = "num_experts", 2
	}
	c.ReadExperts(k, perToken, names...)
	c.ExpertSize = size
	k.Int("moe_intermediate_size", &c.ExpertSize)
	c.ReadShared(k, "n_shared_experts", shared)
	for _, key := range []string{"aux_loss_alpha", "ep_size", "num_mtp_layers", "num_nextn_predict_layers", "seq_aux"} {
		k.Drop(key) // of its own training and of servers; layers for multi-token prediction are left out
	}
}

// deepSeekFixed returns the keys that may have one value alone in families with latent attention.
func deepSeekFixed(scoring, method string) map[string]model.Fixed {
	return map[string]model.Fixed{
		"mlp_bias":       {Value: false, Why: "its MLPs have no biases"},
		"moe_layer_freq": {Value: 1.0, Why: "all layers behind the dense ones have experts"},
		"scoring_func":   {Value: scoring, Why: "other scores of experts are not supported in this family"},
		"topk_method":    {Value: method, Why: "other choices of experts are not supported in this family"},
	}
}
