// Package phi3 is the architecture of Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: Llama's layers with fused projections,
// qkv_proj and gate_up_proj, and rotary positions that may turn a part of a head and be stretched by LongRoPE.
package phi3

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Build applies the network to a batch, up to and with the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	var x *nn.Value
	n.In("model", func() {
		rope := rotary(n, c, &in)
		if rope == nil {
			return
		}
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h := n.RMSNorm("input_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.SelfAttention("self_attn", h, in, nn.Attention{
					Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, Window: c.Window(i), RoPE: rope, Fused: true,
				}))
				h = n.RMSNorm("post_attention_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.FusedMLP("mlp", h, c.IntermediateSize))
			})
		}
		x = n.RMSNorm("norm", x, c.RMSNormEps)
	})
	return x
}

// rotary is the table of rotary angles. LongRoPE's depend on the length of each sequence: where a batch may hold sequences
// of both kinds, the table has rows for either, and in.Positions become places in it. Tokens that are generated over a
// cache go by the longest text that the cache holds: keys are not rotated again while it grows.
func rotary(n *nn.Net, c model.Config, in *nn.Batch) (rope *nn.Value) {
	longest, scale, err := c.InvFreq(in.MaxLen)
	if err != nil {
		n.Fail(err)
		return nil
	}
	limit, both := c.LongRope(in.MaxLen)
	if !both || in.Cache != nil {
		return n.RoPETable(in.MaxLen, longest, scale)
	}
	short, _, err := c.InvFreq(limit)
	if err != nil {
		n.Fail(err)
		return nil
	}
	rope, in.Positions = n.LongRoPETable(in.MaxLen, limit, short, longest, scale, *in)
	return rope
}
