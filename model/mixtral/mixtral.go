// Package mixtral builds Llama's architecture with mixtures of experts in place of MLPs: Mixtral, and Qwen's mixtures,
// which may have MLPs in some layers, a shared expert (Qwen2) and norms of the heads of q and k (Qwen3). The
// configuration describes the differences. Names are the checkpoint's.
package mixtral

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Names holds the names of a layer's experts in a checkpoint: the block, and an expert's linear layers. Fused is the
// block if a layer's experts are one tensor. A block without a name is the layer.
type Names struct{ Block, Gate, Up, Down, Fused string }

// Own holds Mixtral's names, Qwen those of Qwen's mixtures, Gemma those of Gemma 4's.
var (
	Own   = Names{"block_sparse_moe", "w1", "w3", "w2", "mlp"}
	Qwen  = Names{"mlp", "gate_proj", "up_proj", "down_proj", "mlp"}
	Gemma = Names{"", "gate_proj", "up_proj", "down_proj", ""}
)

// Build applies Mixtral to a batch, including the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, Own) }

// BuildQwen applies Qwen2's or Qwen3's mixture of experts.
func BuildQwen(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, Qwen) }

func build(n *nn.Net, c model.Config, in nn.Batch, names Names) *nn.Value {
	moe := nn.MoE{Gate: names.Gate, Up: names.Up, Down: names.Down}
	moe.Experts, moe.PerToken, moe.Inner, moe.Normalise = c.Experts, c.ExpertsPerToken, c.ExpertSize, c.NormTopK
	moe.Activation, moe.Shared = c.HiddenAct, c.SharedSize
	var x *nn.Value
	n.In("model", func() {
		rope := n.Rotary(c, in)
		if rope.Table == nil {
			return
		}
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				attention := nn.Attention{
					Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim,
					QKVBias: c.QKVBias, OBias: c.OBias, Window: c.Window(i), RoPE: rope.Table,
				}
				if c.QKNorm {
					attention.QKNorm = func(name string, x *nn.Value, heads int) *nn.Value {
						return n.HeadsRMSNorm(name, x, heads, c.RMSNormEps)
					}
				}
				h := n.RMSNorm("input_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.SelfAttention("self_attn", h, rope.In, attention))
				h = n.RMSNorm("post_attention_layernorm", x, c.RMSNormEps)
				if c.ExpertLayer(i) {
					x = n.Add(x, n.MoE(names.Block, h, in.Real, moe))
				} else {
					x = n.Add(x, n.GatedMLP("mlp", h, c.IntermediateSize, false, c.HiddenAct))
				}
			})
		}
		x = n.RMSNorm("norm", x, c.RMSNormEps)
		n.BalanceExperts(c.RouterAuxLoss, c.ExpertsPerToken, false, in)
	})
	return x
}
