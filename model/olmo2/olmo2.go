// Package olmo2 builds OLMo 2 (2025, arXiv 2501.00656): Llama's layers with the norms after attention and MLP instead
// of before, and one norm over all queries and one over all keys of a token, before the rotation. OLMo 3 is the same
// with a window in three of four layers, EXAONE 4 the same with a norm of every head.
package olmo2

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Dialect describes config.json of an OLMo 2 model.
var Dialect = model.Dialect{Architecture: "Olmo2ForCausalLM", KVHeadsOptional: true, Defaults: func(c *model.Config) {
	c.RMSNormEps = 1e-5
}, Read: func(c *model.Config, k *model.Keys) {
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
}, Fixed: map[string]model.Fixed{
	"mlp_bias": {Value: false, Why: "olmo2 has no biases in its MLP"},
}}

// Build applies the network to a batch, including the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	var x *nn.Value
	n.In("model", func() {
		local, own := c.LocalRope()
		full, windowed := n.Rotaries(c, local, own, in)
		if windowed.Table == nil {
			return
		}
		attention := nn.Attention{
			Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim,
			QKVBias: c.QKVBias, OBias: c.OBias, QKNorm: qkNorm(n, c),
		}
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				rope := full
				if attention.Window = c.Window(i); attention.Window > 0 {
					rope = windowed
				}
				if attention.RoPE = rope.Table; !c.Rotates(i) {
					attention.RoPE = nil
				}
				h := n.SelfAttention("self_attn", x, rope.In, attention)
				x = n.Add(x, n.RMSNorm("post_attention_layernorm", h, c.RMSNormEps))
				h = n.GatedMLP("mlp", x, c.IntermediateSize, false, c.HiddenAct)
				x = n.Add(x, n.RMSNorm("post_feedforward_layernorm", h, c.RMSNormEps))
			})
		}
		x = n.RMSNorm("norm", x, c.RMSNormEps)
	})
	return x
}
