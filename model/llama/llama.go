// Package llama is the Llama architecture and what it is with other data: pre-norm layers of grouped-query attention
// with rotary positions and a SwiGLU MLP. What differs is data of the configuration. Names are the checkpoint's.
package llama

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Build applies the network to a batch, up to and with the final norm: -> [M,C], scaled by 1/c.LogitDivisor.
//
// A residual multiplier r (Granite) costs nothing: x/r is kept in place of the stream x. Then x + r f(norm(x)) is
// x/r + f(norm(x)), and the norm of x with eps is that of x/r with eps/r².
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	var x *nn.Value
	n.In(c.Scope(), func() {
		rope := n.Rotary(c, in)
		if rope.Table == nil {
			return
		}
		mlp := nn.MLP{Gate: "gate_proj", Up: "up_proj", Down: "down_proj"}
		if c.HiddenAct == model.ReLU2 {
			mlp.Gate = ""
		}
		embed, residual := factor(c.EmbeddingScale), factor(c.ResidualScale)
		eps := c.RMSNormEps / (residual * residual)
		x = n.Scale(n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs), embed/residual) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h := n.RMSNorm("input_layernorm", x, eps)
				a := nn.Attention{
					Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim,
					QKVBias: c.QKVBias, OBias: c.OBias, Window: c.Window(i), Scale: c.AttentionScale,
					Interleaved: c.Interleaved, LateQKNorm: c.LateQKNorm,
				}
				if c.QKNorm {
					a.QKNorm = func(name string, x *nn.Value, heads int) *nn.Value {
						if c.LateQKNorm { // under other names
							name = map[string]string{"q_norm": "query_layernorm", "k_norm": "key_layernorm"}[name]
						}
						return n.HeadsRMSNorm(name, x, heads, c.RMSNormEps)
					}
				}
				if c.Rotates(i) {
					a.RoPE, a.QueryRoPE = rope.Table, rope.Queries
				}
				x = n.Add(x, n.SelfAttention("self_attn", h, rope.In, a))
				h = n.RMSNorm("post_attention_layernorm", x, eps)
				x = n.Add(x, mlp.Apply(n, "mlp", h, c.IntermediateSize, c.MLPBias, c.HiddenAct))
				x = nn.AfterLayer(n, i, x)
			})
		}
		x = n.Scale(n.RMSNorm("norm", x, eps), 1/factor(c.LogitDivisor))
	})
	return x
}

// factor returns a multiplier, for which 0 means 1.
func factor(f float64) float64 {
	if f == 0 {
		return 1
	}
	return f
}
