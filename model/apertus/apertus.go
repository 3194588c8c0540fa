// Package apertus builds Apertus: Llama's layers with a norm of every query and key head, and MLPs without a gate whose
// activation has two learnt numbers. Names are the checkpoint's.
package apertus

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Dialect describes config.json of an Apertus model. Absent keys have the values of Apertus-8B.
var Dialect = model.Dialect{Architecture: "ApertusForCausalLM", KVHeadsOptional: true, Ungated: model.XIELU,
	Rope: &model.DefaultRope{Theta: 12e6, Scaling: model.RopeScaling{Type: "llama3", Factor: 8,
		OriginalMaxPositions: 8192, LowFreqFactor: 1, HighFreqFactor: 4}}, Defaults: func(c *model.Config) {
		c.RMSNormEps, c.RopeTheta, c.HiddenAct = 1e-5, 12e6, model.XIELU
	}, Read: func(c *model.Config, k *model.Keys) {
		c.QKNorm = true
		k.Bool("attention_bias", &c.QKVBias)
		c.OBias = c.QKVBias
	}, Fixed: map[string]model.Fixed{
		"mlp_bias":       {Value: false, Why: "apertus has no biases in its MLP"},
		"post_norm":      {Value: false, Why: "apertus norms before attention and MLP"},
		"qk_norm":        {Value: true, Why: "apertus always norms queries and keys"},
		"hidden_dropout": {Value: 0.0, Why: "training here has no noise in the base model"},
	}}

// Build applies the network to a batch, including the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	var x *nn.Value
	n.In("model", func() {
		rope := n.Rotary(c, in)
		if rope.Table == nil {
			return
		}
		attention := nn.Attention{Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, QKVBias: c.QKVBias,
			OBias: c.OBias, RoPE: rope.Table, QKNorm: func(name string, x *nn.Value, heads int) *nn.Value {
				return n.HeadsRMSNorm(name, x, heads, c.RMSNormEps)
			}}
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h := n.RMSNorm("attention_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.SelfAttention("self_attn", h, rope.In, attention))
				h = n.RMSNorm("feedforward_layernorm", x, c.RMSNormEps)
				n.In("mlp", func() {
					h = nn.XIELU(n, "act_fn", n.Linear("up_proj", c.HiddenSize, c.IntermediateSize, false).Apply(h))
					x = n.Add(x, n.Linear("down_proj", c.IntermediateSize, c.HiddenSize, false).Apply(h))
				})
			})
		}
		x = n.RMSNorm("norm", x, c.RMSNormEps)
	})
	return x
}
