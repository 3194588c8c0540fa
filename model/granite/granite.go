// Package granite builds Granite 4: layers of Mamba-2 or attention with Granite's multipliers, each with an MLP and, in
// the mixtures, experts beside it. Names are the checkpoint's.
package granite

import (
	"cmp"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/mixtral"
	"github.com/tierlora/tierlora/model/nn"
)

// Names holds the names of the mixtures' experts, which a release has in one tensor for each layer.
var Names = mixtral.Names{Block: "block_sparse_moe", Gate: "gate_proj", Up: "up_proj", Down: "down_proj",
	Fused: "block_sparse_moe", Module: "block_sparse_moe", Router: "router.layer", FusedRouter: "router",
	GateUp: "input_linear.weight", OneDown: "output_linear.weight"}

// Hybrid describes config.json of Granite 4. A model may have any of Mamba-2 layers, attention layers and experts.
var Hybrid = model.Dialect{Architecture: "GraniteMoeHybridForCausalLM", KVHeadsOptional: true, SiLU: true,
	Defaults: func(c *model.Config) {
		c.StateSpace = model.StateSpace{Heads: 128, Groups: 1, State: 256, Filter: 4, ConvBias: true}
	}, Read: func(c *model.Config, k *model.Keys) {
		k.Bool("attention_bias", &c.QKVBias)
		c.OBias = c.QKVBias
		c.EmbeddingScale, c.ResidualScale, c.AttentionScale, c.LogitDivisor = 1, 1, 1, 1
		for key, v := range map[string]*float64{"embedding_multiplier": &c.EmbeddingScale,
			"residual_multiplier":  &c.ResidualScale,
			"attention_multiplier": &c.AttentionScale, "logits_scaling": &c.LogitDivisor} {
			if k.Float(key, v); *v == 0 {
				k.Fail(key, "= 0: must not be zero")
			}
		}
		c.Experts = 8
		c.ReadExperts(k, 2, "num_local_experts", "num_experts")
		c.ExpertSize, c.NormTopK = c.IntermediateSize, true
		c.SharedSize = 1024
		if k.Int("shared_intermediate_size", &c.SharedSize); c.SharedSize < 1 || c.SharedSize > 1<<22 {
			k.Fail("shared_intermediate_size", "= %d: must be 1 to %d", c.SharedSize, 1<<22)
		}
		positions := "nope"
		if k.Text("position_embedding_type", &positions); positions != "nope" && positions != "rope" {
			k.Fail("position_embedding_type", "= %q: supported are rope and nope", positions)
		}
		if positions != "rope" && c.NumLayers > 0 && c.NumLayers <= model.MaxLayers {
			c.NoPositions = make([]bool, c.NumLayers)
			for i := range c.NoPositions {
				c.NoPositions[i] = true
			}
		}
		model.ReadMambaLayers(c, k)
		model.ReadMamba(c, k, 2)
	}, Fixed: map[string]model.Fixed{
		"mlp_bias":               {Value: false, Why: "granitemoehybrid has no biases in its MLPs"},
		"normalization_function": {Value: "rmsnorm", Why: "granitemoehybrid norms by RMSNorm"},
	}}

// Build applies the network to a batch, including the final norm: -> [M,C], scaled by 1/c.LogitDivisor. The residual
// stream is kept divided by the residual multiplier, as in package llama.
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	residual := cmp.Or(c.ResidualScale, 1)
	eps := c.RMSNormEps / (residual * residual)
	attention := nn.Attention{Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, QKVBias: c.QKVBias,
		OBias: c.OBias, Scale: c.AttentionScale}
	s := c.StateSpace
	mamba := nn.Mamba{
		StateSpace: kernel.StateSpace{Heads: s.Heads, Groups: s.Groups, State: s.State, MinStep: s.MinStep,
			MaxStep: s.MaxStep},
		HeadSize: s.HeadSize, Filter: s.Filter, ConvBias: s.ConvBias, Bias: s.Bias, Eps: c.RMSNormEps,
	}
	moe := mixtral.Experts(c, Names)
	moe.Shared, moe.Parameters = 0, true // the MLP beside the experts is in every layer
	mlp := nn.GateUpMLP{GateUp: "input_linear", Down: "output_linear"}
	var x *nn.Value
	n.In("model", func() {
		if c.NoPositions == nil {
			rope := n.Rotary(c, in)
			if rope.Table == nil {
				return
			}
			attention.RoPE, in = rope.Table, rope.In
		}
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		x = n.Scale(x, cmp.Or(c.EmbeddingScale, 1)/residual)
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h := n.RMSNorm("input_layernorm", x, eps)
				if c.LinearLayer(i) {
					h = nn.Mamba2(n, "mamba", h, in, mamba)
				} else {
					h = n.SelfAttention("self_attn", h, in, attention)
				}
				x = n.Add(x, h)
				h = n.RMSNorm("post_attention_layernorm", x, eps)
				y := mlp.Apply(n, "shared_mlp", h, c.SharedSize)
				if c.Experts > 0 {
					y = n.Add(n.MoE(Names.Block, h, in.Real, moe), y)
				}
				x = n.Add(x, y)
			})
		}
		x = n.Scale(n.RMSNorm("norm", x, eps), 1/cmp.Or(c.LogitDivisor, 1))
		n.BalanceExperts(c.RouterAuxLoss, c.ExpertsPerToken, false, in)
	})
	return x
}
