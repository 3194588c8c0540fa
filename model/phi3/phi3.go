// Package phi3 builds Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: Llama's layers with fused projections, qkv_proj and
// gate_up_proj, and a rotation that may cover a part of a head and be stretched by LongRoPE.
package phi3

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Build applies the network to a batch, including the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	var x *nn.Value
	n.In("model", func() {
		rope := n.Rotary(c, in)
		if rope.Table == nil {
			return
		}
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h := n.RMSNorm("input_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.SelfAttention("self_attn", h, rope.In, nn.Attention{
					Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, Window: c.Window(i),
					RoPE: rope.Table, Fused: true,
				}))
				h = n.RMSNorm("post_attention_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.FusedMLP("mlp", h, c.IntermediateSize))
			})
		}
		x = n.RMSNorm("norm", x, c.RMSNormEps)
	})
	return x
}
