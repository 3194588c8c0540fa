// Package cohere builds Command R and Aya: layers whose attention and MLP read one LayerNorm, with a rotation of
// neighbouring columns, and a factor of the logits. Names are the checkpoint's.
package cohere

import (
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Cohere describes config.json of Command R (2024), Aya 23 and Aya Expanse.
var Cohere = model.Dialect{Architecture: "CohereForCausalLM", KVHeadsOptional: true, Defaults: func(c *model.Config) {
	c.RopeTheta, c.TieEmbeddings, c.Interleaved = 500000, true, true
}, Read: read, Fixed: fixed("cohere")}

// Cohere2 describes config.json of Command R7B and Command A: a window in all layers but each fourth, or in those that
// layer_types names, and no positions in the others.
var Cohere2 = model.Dialect{Architecture: "Cohere2ForCausalLM", KVHeadsOptional: true, Defaults: func(c *model.Config) {
	c.TieEmbeddings, c.Interleaved = true, true
}, Read: func(c *model.Config, k *model.Keys) {
	read(c, k)
	if c.HeadDim%2 == 0 && c.HeadDim*c.NumHeads != c.HiddenSize {
		k.Fail("head_dim", "= %d: cohere2's heads are together as wide as hidden_size", c.HeadDim)
	}
	if model.ReadWindowPattern(c, k); c.NoPositions == nil && c.SlidingWindow == 0 {
		k.Fail("sliding_window", "must be a number of tokens, 1 or more; layer_types says which layers have it")
	}
	for _, key := range []string{"cache_implementation", "layer_switch", "order_of_interleaved_layers"} {
		k.Drop(key) // layer_types says it
	}
}, Fixed: fixed("cohere2")}

// read reads what both have.
func read(c *model.Config, k *model.Keys) {
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
	const eps = 1e-5
	if c.RMSNormEps = eps; k.Float("layer_norm_eps", &c.RMSNormEps) && !(c.RMSNormEps > 0 && c.RMSNormEps < 1) {
		k.Fail("layer_norm_eps", "= %g: must be above 0 and below 1", c.RMSNormEps)
		c.RMSNormEps = eps
	}
	scale := 0.0625
	if k.Float("logit_scale", &scale); !(scale >= 1e-6 && scale <= 1e6) {
		k.Fail("logit_scale", "= %g: must be 1e-6 to 1e6", scale)
		scale = 1
	}
	c.LogitDivisor = 1 / scale
	for _, key := range []string{"use_embedding_sharing", "use_parallel_embedding"} {
		k.Drop(key) // of the model's training
	}
}

// fixed returns the keys that may have one value, for messages about a family.
func fixed(family string) map[string]model.Fixed {
	return map[string]model.Fixed{
		"mlp_bias":                {Value: false, Why: family + " has no biases in its MLP"},
		"position_embedding_type": {Value: "rope_gptj", Why: family + " rotates neighbouring columns"},
		"rotary_pct":              {Value: 1.0, Why: family + " rotates whole heads"},
		"use_gated_activation":    {Value: true, Why: family + " has a gate in its MLP"},
		"use_parallel_block":      {Value: true, Why: "attention and MLP of " + family + " read one norm"},
		"use_qk_norm":             {Value: false, Why: "LayerNorm of queries and keys is not supported"},
	}
}

// Build applies the network to a batch, including the final norm: -> [M,C], scaled by 1/c.LogitDivisor.
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	var x *nn.Value
	n.In("model", func() {
		rope := n.Rotary(c, in)
		if rope.Table == nil {
			return
		}
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				attention := nn.Attention{Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim,
					QKVBias: c.QKVBias, OBias: c.OBias, Interleaved: c.Interleaved, Window: c.Window(i)}
				if c.Rotates(i) {
					attention.RoPE = rope.Table
				}
				h := nn.LayerNorm(n, "input_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.SelfAttention("self_attn", h, rope.In, attention))
				x = n.Add(x, n.GatedMLP("mlp", h, c.IntermediateSize, false, c.HiddenAct))
			})
		}
		x = n.Scale(nn.LayerNorm(n, "norm", x, c.RMSNormEps), 1/c.LogitDivisor)
	})
	return x
}
