// Package gptoss builds gpt-oss: Llama's attention with sinks, windows in every other layer, and mixtures of experts
// with biases and limits whose gate and up projections are one matrix. Names are the checkpoint's.
package gptoss

import (
	"regexp"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Build applies the network to a batch, including the final norm: -> [M,C].
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
				h := n.RMSNorm("input_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.SelfAttention("self_attn", h, rope.In, nn.Attention{
					Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim,
					QKVBias: c.QKVBias, OBias: c.OBias, Window: c.Window(i), RoPE: rope.Table, Sinks: true,
				}))
				h = n.RMSNorm("post_attention_layernorm", x, c.RMSNormEps)
				x = n.Add(x, n.FusedMoE("mlp", h, in.Real, nn.FusedExperts{Experts: c.Experts,
					PerToken: c.ExpertsPerToken, Inner: c.ExpertSize, Layers: c.ExpertLayers}))
			})
		}
		x = n.RMSNorm("norm", x, c.RMSNormEps)
		n.BalanceExperts(c.RouterAuxLoss, c.ExpertsPerToken, true, in)
	})
	return x
}

// Dialect describes config.json of gpt-oss.
var Dialect = model.Dialect{Architecture: "GptOssForCausalLM", KVHeadsOptional: true, SiLU: true, MXFP4: true,
	Defaults: func(c *model.Config) {
		c.RMSNormEps, c.RopeTheta, c.HeadDim = 1e-5, 150000, 64
	}, Read: func(c *model.Config, k *model.Keys) {
		if !k.Given("num_key_value_heads") {
			c.NumKVHeads = 8
		}
		// As in transformers: version 4 treats and writes null as no scaling, version 5 treats null as absent.
		if given := k.Given("rope_scaling") || k.Given("rope_parameters"); !given || k.Five() &&
			!k.Said("rope_scaling") && !k.Said("rope_parameters") {
			c.RopeScaling = model.RopeScaling{Type: "yarn", Factor: 32, OriginalMaxPositions: 4096, BetaFast: 32,
				BetaSlow: 1, NoTruncate: true}
		}
		c.QKVBias, c.OBias = true, true
		c.Experts = 128
		c.ReadExperts(k, 4, "num_local_experts", "num_experts")
		if c.Experts < 1 {
			k.Fail("num_local_experts", "= %d: must be 1 to %d", c.Experts, model.MaxExperts)
		}
		if c.RouterAuxLoss > 0 && !k.Given("router_aux_loss_coef") {
			c.RouterAuxLoss = 0.9
		}
		perToken := c.ExpertsPerToken
		if k.Int("experts_per_token", &perToken); perToken != c.ExpertsPerToken {
			k.Fail("experts_per_token", "= %d, but num_experts_per_tok is %d", perToken, c.ExpertsPerToken)
		}
		k.Drop("initial_context_length") // read by another program; rope_scaling has the value
		c.ExpertSize, c.NormTopK = c.IntermediateSize, true
		windows(c, k)
		if q := c.Quantization; q != nil && q.Method == model.MXFP4 {
			for key, size := range map[string]int{"hidden_size": c.HiddenSize,
				"intermediate_size": c.IntermediateSize} {
				if size%nn.MXFP4Block != 0 {
					k.Fail(key, "= %d: experts in MXFP4 need a multiple of %d", size, nn.MXFP4Block)
				}
			}
		}
	}, Fixed: map[string]model.Fixed{
		"attention_bias": {Value: true, Why: "gpt_oss always has biases in its attention"},
		"swiglu_limit":   {Value: 7.0, Why: "gpt_oss limits what its experts gate at 7"},
	}}

// ExpertLayers occurs in tensor names of folders that store an expert's matrices as separate linear layers, as Unsloth
// quantises them with bitsandbytes.
const ExpertLayers = ".mlp.experts.gate_up_projs."

var layerNames = strings.NewReplacer(".mlp.router.linear.", ".mlp.router.")

var ofLayer = regexp.MustCompile(`\.mlp\.experts\.(gate_up|down)_projs\.(\d+)\.`)

// Name returns the network's name of a tensor in such a folder.
func Name(tensor string) string {
	return ofLayer.ReplaceAllString(layerNames.Replace(tensor), ".mlp.experts.$2.${1}_proj.")
}

// windows reads which layers have a window: those that layer_types names, or by default every other layer, beginning
// with the first.
func windows(c *model.Config, k *model.Keys) {
	window := 128
	given := k.Has("sliding_window")
	if !k.Int("sliding_window", &window) && given {
		window = 0 // null
	}
	c.SlidingWindow = window
	c.LayerTypes = k.Texts("layer_types")
	if c.LayerTypes == nil && c.NumLayers > 0 && c.NumLayers <= model.MaxLayers {
		for i := range c.NumLayers {
			c.LayerTypes = append(c.LayerTypes, []string{model.SlidingAttention, model.FullAttention}[i%2])
		}
	}
}
