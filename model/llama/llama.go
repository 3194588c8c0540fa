// Package llama is the Llama architecture, which Mistral and Qwen2 share: pre-norm layers of grouped-query attention
// with rotary positions and a SwiGLU MLP. What differs is data of the configuration. Names are the checkpoint's.
package llama

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Build applies the network to a batch, up to and with the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	var x *nn.Value
	n.In("model", func() {
		invFreq, scale, err := c.InvFreq(in.MaxLen)
		if err != nil {
			n.Fail(err)
			return
		}
		rope := n.RoPETable(in.MaxLen, invFreq, scale)
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h := n.RMSNorm("input_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.SelfAttention("self_attn", h, in, nn.Attention{
					Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim,
					QKVBias: c.QKVBias, OBias: c.OBias, Window: c.Window(i), RoPE: rope,
				}))
				h = n.RMSNorm("post_attention_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.MLP("mlp", h, c.IntermediateSize, c.MLPBias))
			})
		}
		x = n.RMSNorm("norm", x, c.RMSNormEps)
	})
	return x
}
