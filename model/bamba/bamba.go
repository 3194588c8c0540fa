// Package bamba builds Bamba, whose layers have a Mamba-2 layer or attention, and Falcon-H1, whose layers have both
// side by side. Behind them is an MLP. Names are the checkpoint's.
package bamba

import (
	"cmp"
	"math"
	"slices"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// rotated is the part of a head that Bamba rotates.
const rotated = 0.5

// Dialect describes config.json of Bamba.
var Dialect = model.Dialect{Architecture: "BambaForCausalLM", KVHeadsOptional: true, PartialRotary: true, SiLU: true,
	Defaults: func(c *model.Config) {
		defaults(c)
		c.PartialRotary = rotated
	}, Read: func(c *model.Config, k *model.Keys) {
		readBiases(c, k)
		model.ReadMamba(c, k, 2)
		readAttentionLayers(c, k)
		if k.Said("partial_rotary_factor") && c.PartialRotary != rotated {
			k.Fail("partial_rotary_factor", "= %g: transformers reads it in rope_parameters alone",
				cmp.Or(c.PartialRotary, 1))
		}
		k.Drop("attn_rotary_emb") // what partial_rotary_factor says, in columns
	}, Fixed: map[string]model.Fixed{
		"z_loss_coefficient": {Value: 0.0, Why: "a loss of the logits' sizes is not supported"},
	}}

// defaults sets the values of absent keys that both families have.
func defaults(c *model.Config) {
	c.RMSNormEps, c.NumKVHeads = 1e-5, 8
	c.StateSpace = model.StateSpace{Heads: 128, Groups: 1, State: 256, Filter: 4, ConvBias: true}
}

// readBiases reads the biases of attention and of the MLPs.
func readBiases(c *model.Config, k *model.Keys) {
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
	k.Bool("mlp_bias", &c.MLPBias)
	k.Drop("num_logits_to_keep") // of generation
}

// readAttentionLayers reads which layers have attention; the others are Mamba-2 layers.
func readAttentionLayers(c *model.Config, k *model.Keys) {
	const key = "attn_layer_indices"
	layers, _ := k.Ints(key)
	if c.NumLayers < 1 || c.NumLayers > model.MaxLayers {
		return
	}
	c.LayerTypes = slices.Repeat([]string{model.LinearAttention}, c.NumLayers)
	for i, layer := range layers {
		if layer < 0 || layer >= c.NumLayers {
			k.Fail(key, "[%d] = %d: must be 0 to %d", i, layer, c.NumLayers-1)
			return
		}
		c.LayerTypes[layer] = model.FullAttention
	}
}

// Build applies the network to a batch, including the final norm: -> [M,C], scaled by the head's multiplier.
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	s, by := c.StateSpace, cmp.Or(c.Multipliers, model.NoMultipliers())
	mamba := nn.Mamba{HeadSize: s.HeadSize, Filter: s.Filter, ConvBias: s.ConvBias, Bias: s.Bias, Eps: c.RMSNormEps,
		StateSpace: kernel.StateSpace{Heads: s.Heads, Groups: s.Groups, State: s.State, MinStep: s.MinStep,
			MaxStep: s.MaxStep}}
	if c.Multipliers != nil {
		mamba.NormGroups, mamba.NoNorm = s.Groups, !s.Norm
	}
	if slices.ContainsFunc(by.Scan, func(v float64) bool { return v != 1 }) {
		mamba.Scales = by.Scan
	}
	var x *nn.Value
	n.In("model", func() {
		rope := n.Rotary(c, in)
		if rope.Table == nil {
			return
		}
		attention := nn.Attention{Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, QKVBias: c.QKVBias,
			OBias: c.OBias, RoPE: rope.Table, Scale: by.Key / math.Sqrt(float64(c.HeadDim))}
		x = n.Scale(n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs), by.Embedding) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h, result := n.RMSNorm("input_layernorm", x, c.RMSNormEps), (*nn.Value)(nil)
				if c.LayerTypes == nil || c.LinearLayer(i) {
					result = n.Scale(nn.Mamba2(n, "mamba", n.Scale(h, by.ScanIn), rope.In, mamba), by.ScanOut)
				}
				if !c.LinearLayer(i) {
					h = n.SelfAttention("self_attn", n.Scale(h, by.AttentionIn), rope.In, attention)
					result = added(n, result, n.Scale(h, by.AttentionOut))
				}
				x = n.Add(x, result)
				x = n.Add(x, mlp(n, n.RMSNorm("pre_ff_layernorm", x, c.RMSNormEps), c, by.MLP))
			})
		}
		x = n.Scale(n.RMSNorm("final_layernorm", x, c.RMSNormEps), by.Head)
	})
	return x
}

// added returns x + y, where x may be nil.
func added(n *nn.Net, x, y *nn.Value) *nn.Value {
	if x == nil {
		return y
	}
	return n.Add(x, y)
}

// mlp is down(silu(gate x * by[0]) * up x) * by[1].
func mlp(n *nn.Net, x *nn.Value, c model.Config, by []float64) *nn.Value {
	n.In("feed_forward", func() {
		width, inner := x.Width(), c.IntermediateSize
		gate := n.Scale(n.Linear("gate_proj", width, inner, c.MLPBias).Apply(x), by[0])
		h := n.Apply(kernel.SwiGLU{}, gate, n.Linear("up_proj", width, inner, c.MLPBias).Apply(x))
		x = n.Scale(n.Linear("down_proj", inner, width, c.MLPBias).Apply(h), by[1])
	})
	return x
}
