package gemma

import (
	"math"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Build4 builds Gemma 4's language model: four norms per layer with plain weights; norms of queries, keys and values;
// unscaled attention scores; separate head sizes in full layers; and a factor for each layer's output. The small models
// have per-layer inputs, and last layers without keys and values; the mixture has experts beside each layer's MLP.
func Build4(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	moe := nn.MoE{Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Experts: c.Experts, PerToken: c.ExpertsPerToken,
		Inner: c.ExpertSize, Activation: c.HiddenAct}
	var x *nn.Value
	n.In(c.Scope(), func() {
		local, _ := c.LocalRope()
		full, windowed := n.Rotaries(c.FullRope(), local, true, in)
		if windowed.Table == nil {
			return
		}
		norm := func(name string, x *nn.Value) *nn.Value { return n.RMSNorm(name, x, c.RMSNormEps) }
		x = n.ScaledEmbed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs, math.Sqrt(float64(c.HiddenSize))) // [M,C]
		inputs := layerInputs(n, c, in, x)
		kept := make([]nn.KeysValues, c.NumLayers)
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				rope := full
				if c.Window(i) > 0 {
					rope = windowed
				}
				size, kvHeads := c.Heads(i)
				a := nn.Attention{
					Heads: c.NumHeads, KVHeads: kvHeads, HeadDim: size, QKVBias: c.QKVBias, OBias: c.OBias,
					Window: c.Window(i), Scale: 1, RoPE: rope.Table,
					QKNorm: func(name string, x *nn.Value, heads int) *nn.Value {
						return n.HeadsRMSNorm(name, x, heads, c.RMSNormEps)
					},
					ValueNorm: func(x *nn.Value, heads int) *nn.Value {
						return n.UnitRMSNorm(x, heads, c.RMSNormEps)
					},
					ValuesAreKeys: c.Gemma4.ValuesAreKeys && c.Window(i) == 0,
				}
				inner := c.IntermediateSize
				if of := c.KVLayer(i); of == i {
					a.Keep = &kept[i]
				} else {
					a.Of = &kept[of]
					if c.Gemma4.DoubleMLP {
						inner *= 2
					}
				}
				x = n.Add(x, norm("post_attention_layernorm", n.SelfAttention("self_attn", norm("input_layernorm",
					x), rope.In, a)))
				y := n.GatedMLP("mlp", norm("pre_feedforward_layernorm", x), inner, false, c.HiddenAct)
				if c.Experts > 0 {
					z := n.ScaledMoE(norm("pre_feedforward_layernorm_2", x), x, in.Real, moe, c.RMSNormEps)
					y = n.Add(norm("post_feedforward_layernorm_1", y), norm("post_feedforward_layernorm_2", z))
				}
				x = n.Add(x, norm("post_feedforward_layernorm", y))
				if inputs != nil {
					y := n.GatedInput(x, n.Slice(inputs, i, c.NumLayers), c.HiddenAct)
					x = n.Add(x, norm("post_per_layer_input_norm", y))
				}
				x = n.ScaleBy("layer_scalar", x)
			})
		}
		x = norm("norm", x)
	})
	return x
}

// layerInputs computes the per-layer inputs of each token, besides the residual stream: (norm(W x / sqrt(C)) + e
// sqrt(P)) / sqrt(2) with the embeddings x and a row e of a separate table, P columns per layer: [M,L*P]. It returns
// nil if the model has none.
func layerInputs(n *nn.Net, c model.Config, in nn.Batch, x *nn.Value) *nn.Value {
	size := c.Gemma4.PerLayerInput
	if size == 0 {
		return nil
	}
	width := c.NumLayers * size
	e := n.ScaledEmbed("embed_tokens_per_layer", c.Gemma4.PerLayerVocab, width, in.IDs, math.Sqrt(float64(size)))
	y := n.Linear("per_layer_model_projection", c.HiddenSize, width, false).Apply(x)
	y = n.HeadsRMSNorm("per_layer_projection_norm", n.Scale(y, 1/math.Sqrt(float64(c.HiddenSize))),
		c.NumLayers, c.RMSNormEps)
	return n.Scale(n.Add(y, e), 1/math.Sqrt2)
}
