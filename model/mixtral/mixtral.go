// Package mixtral builds Llama's architecture with mixtures of experts in place of MLPs: Mixtral; Qwen's mixtures,
// which may have MLPs in some layers, a shared expert (Qwen2) and norms of the heads of q and k (Qwen3); and mixtures
// that choose experts by scores with a correction. The configuration describes the differences. Names are the
// checkpoint's.
package mixtral

import (
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Names holds the names of a layer's experts in a checkpoint: the block, and an expert's linear layers. Fused is the
// block if a layer's experts are one tensor. A block without a name is the layer. Correction is the correction of a
// router by scores within the block, and Shared the shared expert, if it has no gate. Module is the block in
// transformers 5; "" = mlp. FusedCorrection is Correction in checkpoints with experts in one tensor; "" = the same.
//
// Router is the router within the block; "" = gate. FusedRouter is Router in transformers 5, if it differs. GateUp and
// OneDown are the tensors within the block that hold all experts of a layer in a release; "" = a release has a tensor
// for each expert, or transformers 5's tensors.
type Names struct {
	Block, Gate, Up, Down, Fused, Module, Correction, FusedCorrection, Shared string

	Router, FusedRouter, GateUp, OneDown string
}

// Own holds Mixtral's names, Qwen those of Qwen's mixtures, Gemma those of Gemma 4's.
var (
	Own   = Names{Block: "block_sparse_moe", Gate: "w1", Up: "w3", Down: "w2", Fused: "mlp"}
	Qwen  = Names{Block: "mlp", Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Fused: "mlp"}
	Gemma = Names{Gate: "gate_proj", Up: "up_proj", Down: "down_proj"}
)

// Build applies Mixtral to a batch, including the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, Own) }

// BuildQwen applies Qwen2's or Qwen3's mixture of experts.
func BuildQwen(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, Qwen) }

// Experts returns the mixture of experts of a configuration with a checkpoint's names.
func Experts(c model.Config, names Names) nn.MoE {
	moe := nn.MoE{Gate: names.Gate, Up: names.Up, Down: names.Down, Module: names.Module,
		SharedName: names.Shared, Router: names.Router}
	moe.Experts, moe.PerToken, moe.Inner, moe.Normalise = c.Experts, c.ExpertsPerToken, c.ExpertSize, c.NormTopK
	moe.Activation, moe.Shared = c.HiddenAct, c.SharedSize
	if r := c.Routing; r.Scored {
		shape := []int{c.Experts}
		if r.CorrectionRow {
			shape = []int{1, c.Experts}
		}
		moe.Scores = &nn.Scores{Correction: names.Correction, Shape: shape,
			RouteScores: kernel.RouteScores{Corrected: r.Corrected, Groups: r.Groups, TopGroups: r.TopGroups,
				Best: r.Best, Weigh: kernel.ScoreWeights{Softmax: r.Softmax, Normalise: c.NormTopK, Epsilon: r.Epsilon,
					Least: r.Least, Scale: r.Scale}}}
	}
	return moe
}

func build(n *nn.Net, c model.Config, in nn.Batch, names Names) *nn.Value {
	moe := Experts(c, names)
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
					Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, Interleaved: c.Interleaved,
					QKVBias: c.QKVBias, OBias: c.OBias, Window: c.Window(i), RoPE: rope.Table,
				}
				if c.QKNorm {
					attention.QKNorm = func(name string, x *nn.Value, heads int) *nn.Value {
						if c.WholeQKNorm {
							heads = 1
						}
						return n.HeadsRMSNorm(name, x, heads, c.RMSNormEps)
					}
				}
				h := n.RMSNorm("input_layernorm", x, c.RMSNormEps)
				if c.Latent != (model.Latent{}) {
					x = n.Add(x, nn.LatentAttention(n, "self_attn", h, rope.In, latent(c, rope.Table)))
				} else {
					x = n.Add(x, n.SelfAttention("self_attn", h, rope.In, attention))
				}
				h = n.RMSNorm("post_attention_layernorm", x, c.RMSNormEps)
				if c.ExpertLayer(i) {
					x = n.Add(x, n.MoE(names.Block, h, in.Real, moe))
				} else {
					x = n.Add(x, n.GatedMLP("mlp", h, c.IntermediateSize, c.MLPBias, c.HiddenAct))
				}
			})
		}
		x = n.RMSNorm("norm", x, c.RMSNormEps)
		n.BalanceExperts(c.RouterAuxLoss, c.ExpertsPerToken, false, in)
	})
	return x
}
