// Package afmoe builds AFMoE (Arcee's Trinity): windows in all layers but each few, positions in these alone, a gate on
// what attention gives, norms before and after attention and MLP, and experts chosen by scores with a correction beside
// shared ones. Names are the checkpoint's.
package afmoe

import (
	"math"
	"slices"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/mixtral"
	"github.com/tierlora/tierlora/model/nn"
)

// Names holds the names of a layer's experts.
var Names = mixtral.Names{Block: "mlp", Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Fused: "mlp",
	Correction: "expert_bias", Shared: "shared_experts", Router: "router.gate", FusedRouter: "router.gate"}

// Dialect describes config.json of an AFMoE model. Absent keys have transformers' values.
var Dialect = model.Dialect{Architecture: "AfmoeForCausalLM", KVHeadsOptional: true, Defaults: func(c *model.Config) {
	c.RMSNormEps, c.HeadDim = 1e-5, 128
	c.Routing = model.Routing{Scored: true, Corrected: true, Epsilon: 1e-20, Scale: 1}
}, Read: func(c *model.Config, k *model.Keys) {
	c.QKNorm, c.NormTopK = true, true
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
	mup := false
	if k.Bool("mup_enabled", &mup); mup {
		c.EmbeddingScale = math.Sqrt(float64(c.HiddenSize))
	}
	c.Experts = 64
	c.ReadExperts(k, 6, "num_experts", "num_local_experts")
	c.ExpertSize = 1408
	k.Int("moe_intermediate_size", &c.ExpertSize)
	c.ReadShared(k, "num_shared_experts", 2)
	k.Float("route_scale", &c.Routing.Scale)
	c.ReadFirstDense(k, "num_dense_layers", 1)
	layers(c, k)
	k.Drop("load_balance_coeff") // of its training
	k.OwnCode("AfmoeForCausalLM")
}, Fixed: map[string]model.Fixed{
	"mlp_bias":           {Value: false, Why: "afmoe has no biases in its MLPs"},
	"n_group":            {Value: 1.0, Why: "afmoe chooses from all experts"},
	"num_expert_groups":  {Value: 1.0, Why: "afmoe chooses from all experts"},
	"num_limited_groups": {Value: 1.0, Why: "afmoe chooses from all experts"},
	"topk_group":         {Value: 1.0, Why: "afmoe chooses from all experts"},
	"route_norm":         {Value: true, Why: "afmoe always divides a token's weights by their sum"},
	"score_func":         {Value: "sigmoid", Why: "afmoe scores by sigmoids"},
	"use_grouped_mm":     {Value: true, Why: "the experts' GEMMs are grouped"},
}}

// layers reads which layers have the window: those that layer_types names, or all but the last of every
// global_attn_every_n_layers. Layers without it have no positions.
func layers(c *model.Config, k *model.Keys) {
	c.SlidingWindow = 1024
	k.Int("sliding_window", &c.SlidingWindow)
	every := 4
	if k.Int("global_attn_every_n_layers", &every); every < 1 {
		k.Fail("global_attn_every_n_layers", "= %d: must be 1 or more", every)
		every = 1
	}
	c.LayerTypes = k.Texts("layer_types")
	if c.LayerTypes == nil && c.NumLayers > 0 && c.NumLayers <= model.MaxLayers {
		for i := range c.NumLayers {
			kind := model.SlidingAttention
			if (i+1)%every == 0 {
				kind = model.FullAttention
			}
			c.LayerTypes = append(c.LayerTypes, kind)
		}
	}
	if len(c.LayerTypes) == c.NumLayers {
		for _, kind := range c.LayerTypes {
			c.NoPositions = append(c.NoPositions, kind == model.FullAttention)
		}
	}
	if !slices.Contains(c.LayerTypes, model.SlidingAttention) {
		c.SlidingWindow = 0
	}
}

// Build applies the network to a batch, including the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	moe := mixtral.Experts(c, Names)
	moe.LinearRouter = true
	var x *nn.Value
	n.In("model", func() {
		rope := n.Rotary(c, in)
		if rope.Table == nil {
			return
		}
		norm := func(name string, x *nn.Value) *nn.Value { return n.RMSNorm(name, x, c.RMSNormEps) }
		x = n.Scale(n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs), c.EmbeddingScale) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				attention := nn.Attention{Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim,
					QKVBias: c.QKVBias, OBias: c.OBias, Window: c.Window(i), Gate: "gate_proj",
					QKNorm: func(name string, x *nn.Value, heads int) *nn.Value {
						return n.HeadsRMSNorm(name, x, heads, c.RMSNormEps)
					}}
				if c.Rotates(i) {
					attention.RoPE = rope.Table
				}
				h := n.SelfAttention("self_attn", norm("input_layernorm", x), rope.In, attention)
				x = n.Add(x, norm("post_attention_layernorm", h))
				h = norm("pre_mlp_layernorm", x)
				if c.ExpertLayer(i) {
					h = n.MoE(Names.Block, h, in.Real, moe)
				} else {
					h = n.GatedMLP("mlp", h, c.IntermediateSize, false, c.HiddenAct)
				}
				x = n.Add(x, norm("post_mlp_layernorm", h))
			})
		}
		x = norm("norm", x)
	})
	return x
}
