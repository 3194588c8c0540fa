// Package gemma builds Gemma models of four generations: scaled embeddings, norms whose weights are stored minus one, a
// GELU-gated MLP and tied heads. Gemma 2 adds norms on both sides of attention and MLP, alternating windows and soft
// caps; Gemma 3 adds norms of queries and keys and a separate rotary base for windowed layers. Names are the
// checkpoint's.
package gemma

import (
	"math"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Build1 builds Gemma, which has pre-norm layers like Llama.
func Build1(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, false, false) }

// Build2 builds Gemma 2, which has four norms per layer.
func Build2(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, true, false) }

// Build3 builds Gemma 3's text model, which has four norms per layer and norms of queries and keys.
func Build3(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, true, true) }

// build applies the network to a batch, including the final norm: -> [M,C].
func build(n *nn.Net, c model.Config, in nn.Batch, postNorms, qkNorm bool) *nn.Value {
	var x *nn.Value
	n.In(c.Scope(), func() {
		local, own := c.LocalRope()
		full, windowed := n.Rotaries(c, local, own, in)
		if windowed.Table == nil {
			return
		}
		norm := func(name string, x *nn.Value) *nn.Value { return n.PlusOneRMSNorm(name, x, 1, c.RMSNormEps) }
		x = n.ScaledEmbed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs, math.Sqrt(float64(c.HiddenSize))) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				rope := full
				if c.Window(i) > 0 {
					rope = windowed
				}
				a := nn.Attention{
					Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, QKVBias: c.QKVBias, OBias: c.OBias,
					Window: c.Window(i), Scale: c.AttentionScale, Cap: c.AttentionCap, RoPE: rope.Table,
				}
				if qkNorm {
					a.QKNorm = func(name string, x *nn.Value, heads int) *nn.Value {
						return n.PlusOneRMSNorm(name, x, heads, c.RMSNormEps)
					}
				}
				y := n.SelfAttention("self_attn", norm("input_layernorm", x), rope.In, a)
				before := "post_attention_layernorm"
				if postNorms {
					y, before = norm(before, y), "pre_feedforward_layernorm"
				}
				x = n.Add(x, y)
				y = n.GatedMLP("mlp", norm(before, x), c.IntermediateSize, false, c.HiddenAct)
				if postNorms {
					y = norm("post_feedforward_layernorm", y)
				}
				x = n.Add(x, y)
			})
		}
		x = norm("norm", x)
	})
	return x
}
