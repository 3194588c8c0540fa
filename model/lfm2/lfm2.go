// Package lfm2 builds LFM2 and its mixtures of experts: most layers have a short convolution in place of attention, and
// the mixtures choose experts by scores with a correction. Names are the checkpoint's.
package lfm2

import (
	"slices"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/mixtral"
	"github.com/tierlora/tierlora/model/nn"
)

// Names holds the names of the mixtures' experts.
var Names = mixtral.Names{Block: "feed_forward", Gate: "w1", Up: "w3", Down: "w2", Fused: "feed_forward",
	Module: "feed_forward", Correction: "expert_bias"}

// Dialect describes config.json of an LFM2 model.
var Dialect = model.Dialect{Architecture: "Lfm2ForCausalLM", Defaults: defaults, Read: func(c *model.Config,
	k *model.Keys) {
	read(c, k)
	k.Int("block_ff_dim", &c.IntermediateSize) // the former name, which goes before the other
	adjust, multiplier, multiple := true, 1.0, 256
	k.Bool("block_auto_adjust_ff_dim", &adjust)
	k.Float("block_ffn_dim_multiplier", &multiplier)
	if k.Int("block_multiple_of", &multiple); multiple < 1 || multiple > 1<<20 {
		k.Fail("block_multiple_of", "= %d: must be 1 to %d", multiple, 1<<20)
		return
	}
	if !(multiplier > 0 && multiplier <= 1e3) {
		k.Fail("block_ffn_dim_multiplier", "= %g: must be above 0 and at most 1000", multiplier)
		return
	}
	if adjust && c.IntermediateSize > 0 && c.IntermediateSize <= 1<<22 {
		size := int(multiplier * float64(2*c.IntermediateSize/3))
		c.IntermediateSize = (size + multiple - 1) / multiple * multiple
	}
}, Fixed: fixed}

// Mixture describes config.json of an LFM2 mixture of experts. Absent keys have the values of LFM2-8B-A1B.
var Mixture = model.Dialect{Architecture: "Lfm2MoeForCausalLM", Defaults: func(c *model.Config) {
	defaults(c)
	c.IntermediateSize = 7168
	c.Routing = model.Routing{Scored: true, Epsilon: 1e-6, Scale: 1}
}, Read: func(c *model.Config, k *model.Keys) {
	read(c, k)
	c.Experts = 32
	c.ReadExperts(k, 4, "num_experts", "num_local_experts")
	c.ExpertSize, c.NormTopK, c.Routing.Corrected = 1792, true, true
	k.Int("moe_intermediate_size", &c.ExpertSize)
	k.Bool("use_expert_bias", &c.Routing.Corrected)
	k.Bool("norm_topk_prob", &c.NormTopK)
	k.Float("routed_scaling_factor", &c.Routing.Scale)
	c.ReadFirstDense(k, "num_dense_layers", 2)
}, Fixed: fixed}

func defaults(c *model.Config) {
	c.RMSNormEps, c.RopeTheta, c.NumKVHeads, c.TieEmbeddings = 1e-5, 1e6, 8, true
	c.IntermediateSize = 12288
}

// read reads what both have: which layers have attention, and the convolution's window.
func read(c *model.Config, k *model.Keys) {
	c.QKNorm, c.ShortConv = true, 3
	k.Float("norm_eps", &c.RMSNormEps)
	k.Int("conv_L_cache", &c.ShortConv)
	k.Bool("tie_embedding", &c.TieEmbeddings)
	full, given := k.Ints("full_attn_idxs")
	c.LayerTypes = k.Texts("layer_types")
	if c.LayerTypes == nil && c.NumLayers > 0 && c.NumLayers <= model.MaxLayers {
		for i := range c.NumLayers {
			kind := model.FullAttention
			if given && !slices.Contains(full, i) {
				kind = model.ConvLayer
			}
			c.LayerTypes = append(c.LayerTypes, kind)
		}
	}
	for _, key := range unused {
		k.Drop(key)
	}
}

// unused are keys of releases that transformers does not read: sizes that others repeat, and how weights began.
var unused = []string{"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
	"block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads"}

var fixed = map[string]model.Fixed{
	"attention_bias":   {Value: false, Why: "lfm2 has no biases"},
	"mlp_bias":         {Value: false, Why: "lfm2 has no biases"},
	"conv_bias":        {Value: false, Why: "a bias of the convolution is not supported"},
	"block_use_swiglu": {Value: true, Why: "lfm2 gates its MLPs by SiLU"},
	"use_pos_enc":      {Value: true, Why: "lfm2 rotates queries and keys"},
}

// Build applies the network to a batch, including the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	moe := mixtral.Experts(c, Names)
	var x *nn.Value
	n.In("model", func() {
		rope := n.Rotary(c, in)
		if rope.Table == nil {
			return
		}
		attention := nn.Attention{Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, RoPE: rope.Table,
			Out: "out_proj", QKNorm: func(name string, x *nn.Value, heads int) *nn.Value {
				return n.HeadsRMSNorm(name[:1]+"_layernorm", x, heads, c.RMSNormEps)
			}}
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h := n.RMSNorm("operator_norm", x, c.RMSNormEps)
				if c.LayerTypes[i] == model.ConvLayer {
					h = nn.ShortConv(n, "conv", h, in, c.ShortConv)
				} else {
					h = n.SelfAttention("self_attn", h, rope.In, attention)
				}
				x = n.Add(x, h)
				h = n.RMSNorm("ffn_norm", x, c.RMSNormEps)
				if c.ExpertLayer(i) {
					x = n.Add(x, n.MoE(Names.Block, h, in.Real, moe))
				} else {
					x = n.Add(x, nn.MLP{Gate: "w1", Up: "w3", Down: "w2"}.Apply(n, Names.Block, h, c.IntermediateSize,
						false, c.HiddenAct))
				}
			})
		}
		x = n.RMSNorm("embedding_norm", x, c.RMSNormEps)
	})
	return x
}
