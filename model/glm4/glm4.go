// Package glm4 builds GLM-4-0414 and GLM-Z1-0414: Llama's layers with norms on both sides of attention and MLP, a fused
// gate_up_proj, and a rotation of neighbouring columns in the first part of every head. Names are the checkpoint's.
package glm4

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Dialect describes config.json of a glm4 model.
var Dialect = model.Dialect{Architecture: "Glm4ForCausalLM", PartialRotary: true, SiLU: true,
	Defaults: func(c *model.Config) {
		c.RMSNormEps, c.HeadDim, c.PartialRotary, c.QKVBias, c.Interleaved = 1.5625e-7, 128, 0.5, true, true
	}, Read: func(c *model.Config, k *model.Keys) {
		k.Bool("attention_bias", &c.QKVBias)
	}, Fixed: map[string]model.Fixed{
		"mlp_bias": {Value: false, Why: "glm4 has no biases in its MLP"},
	}}

// GLM describes config.json of GLM-4-9B and GLM-Edge, which have no norms behind attention and MLP.
var GLM = model.Dialect{Architecture: "GlmForCausalLM", PartialRotary: true, SiLU: true, Defaults: Dialect.Defaults,
	Read: Dialect.Read, Fixed: map[string]model.Fixed{
		"mlp_bias": {Value: false, Why: "glm has no biases in its MLP"},
	}}

// Build applies the network of glm4 to a batch, including the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	return build(n, c, in, func(name string, x *nn.Value) *nn.Value { return n.RMSNorm(name, x, c.RMSNormEps) })
}

// BuildGLM does what Build does, for glm.
func BuildGLM(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	return build(n, c, in, func(_ string, x *nn.Value) *nn.Value { return x })
}

// build applies the network; after is what attention and MLP have behind them, by the name of glm4's norm.
func build(n *nn.Net, c model.Config, in nn.Batch, after func(name string, x *nn.Value) *nn.Value) *nn.Value {
	var x *nn.Value
	n.In("model", func() {
		rope := n.Rotary(c, in)
		if rope.Table == nil {
			return
		}
		norm := func(name string, x *nn.Value) *nn.Value { return n.RMSNorm(name, x, c.RMSNormEps) }
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h := n.SelfAttention("self_attn", norm("input_layernorm", x), rope.In, nn.Attention{
					Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, QKVBias: c.QKVBias, RoPE: rope.Table,
					Interleaved: c.Interleaved,
				})
				x = n.Add(x, after("post_self_attn_layernorm", h))
				h = n.FusedMLP("mlp", norm("post_attention_layernorm", x), c.IntermediateSize)
				x = n.Add(x, after("post_mlp_layernorm", h))
			})
		}
		x = norm("norm", x)
	})
	return x
}
