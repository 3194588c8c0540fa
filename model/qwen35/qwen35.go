package qwen35

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Build applies Qwen3.5 to a batch, including the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, true) }

// BuildNext applies Qwen3-Next, whose experts a checkpoint may have as linear layers.
func BuildNext(n *nn.Net, c model.Config, in nn.Batch) *nn.Value { return build(n, c, in, false) }

// build applies the network; parameters reports that transformers always has the experts' matrices as parameters.
func build(n *nn.Net, c model.Config, in nn.Batch, parameters bool) *nn.Value {
	linear := nn.DeltaNet{KeyHeads: c.DeltaNet.KeyHeads, ValueHeads: c.DeltaNet.ValueHeads, KeySize: c.DeltaNet.KeySize,
		ValueSize: c.DeltaNet.ValueSize,
		Filter:    c.DeltaNet.Filter, Eps: c.RMSNormEps, Fused: c.DeltaNet.Fused}
	moe := nn.MoE{Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Experts: c.Experts, PerToken: c.ExpertsPerToken,
		Inner:     c.ExpertSize,
		Normalise: c.NormTopK, Activation: c.HiddenAct, Shared: c.SharedSize, Parameters: parameters, PlainRouter: true}
	var x *nn.Value
	n.In(c.Scope(), func() {
		rope := n.Rotary(c, in)
		if rope.Table == nil {
			return
		}
		norm := func(name string, x *nn.Value, heads int) *nn.Value {
			return n.PlusOneRMSNorm(name, x, heads, c.RMSNormEps)
		}
		full := nn.Attention{
			Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, QKVBias: c.QKVBias, OBias: c.OBias,
			RoPE: rope.Table, QKNorm: norm, Gated: true,
		}
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h := norm("input_layernorm", x, 1)
				if c.LinearLayer(i) {
					h = n.GatedDeltaNet("linear_attn", h, in, linear)
				} else {
					h = n.SelfAttention("self_attn", h, rope.In, full)
				}
				x = n.Add(x, h)
				h = norm("post_attention_layernorm", x, 1)
				if c.ExpertLayer(i) {
					x = n.Add(x, n.MoE("mlp", h, in.Real, moe))
				} else {
					x = n.Add(x, n.GatedMLP("mlp", h, c.IntermediateSize, false, c.HiddenAct))
				}
			})
		}
		x = norm("norm", x, 1)
		if c.Experts > 0 {
			n.BalanceExperts(c.RouterAuxLoss, c.ExpertsPerToken, false, in)
		}
	})
	return x
}
