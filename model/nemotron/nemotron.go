// Package nemotron builds Nemotron-H and Nemotron 3: every layer is one norm before one of a Mamba-2 layer, attention
// without rotation, an MLP of the squared rectifier, or a mixture of such MLPs. Layers have the names of
// transformers 5, except for the embeddings, which have every family's name.
package nemotron

import (
	"slices"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/mixtral"
	"github.com/tierlora/tierlora/model/nn"
)

// Names holds the names of the mixtures' experts.
var Names = mixtral.Names{Block: mixer, Up: "up_proj", Down: "down_proj", Fused: mixer, Module: mixer,
	Correction: "gate.e_score_correction_bias", Shared: "shared_experts"}

// mixer is what every layer has behind its norm.
const mixer = "mixer"

// Unused are tensors of layers for multi-token prediction.
var Unused = []string{"mtp.*"}

// Name returns the network's name of a checkpoint's tensor.
func Name(tensor string) string {
	if rest, ok := strings.CutPrefix(tensor, "backbone."); ok {
		tensor = "model." + rest
	}
	if tensor == "model.embeddings.weight" {
		return "model.embed_tokens.weight"
	}
	return tensor
}

// Dialect describes config.json of Nemotron-H and Nemotron 3. A model may have any of the four kinds of layers.
var Dialect = model.Dialect{Architecture: "NemotronHForCausalLM", ActivationKey: "mlp_hidden_act", Ungated: model.ReLU2,
	Defaults: func(c *model.Config) {
		c.HiddenAct, c.NumLayers, c.NumKVHeads, c.HeadDim = model.ReLU2, model.FromLayerTypes, 8, 128
		c.IntermediateSize = 21504
		c.StateSpace = model.StateSpace{Heads: 128, HeadSize: 64, Groups: 8, State: 128, Filter: 4, ConvBias: true}
		c.Routing = model.Routing{Scored: true, Corrected: true, Groups: 1, TopGroups: 1, Best: 2, Epsilon: 1e-20,
			Scale: 1}
	}, Read: func(c *model.Config, k *model.Keys) {
		c.RMSNormEps = 1e-5
		k.Float("layer_norm_epsilon", &c.RMSNormEps)
		if c.TieEmbeddings {
			k.Fail("tie_word_embeddings", "= true: nemotron_h has a head apart from the embeddings")
		}
		c.OneMixer = true
		c.LayerTypes = layerTypes(k)
		if c.NumLayers == model.FromLayerTypes {
			c.NumLayers = len(c.LayerTypes)
		}
		model.ReadNemotronMamba(c, k)
		readExperts(c, k)
		for _, key := range unused {
			k.Drop(key)
		}
		k.OwnCode("NemotronHForCausalLM")
	}, Fixed: map[string]model.Fixed{
		"attention_bias":   {Value: false, Why: "nemotron_h has no biases in its attention"},
		"mlp_bias":         {Value: false, Why: "biases of nemotron_h's MLPs are not supported"},
		"mamba_proj_bias":  {Value: false, Why: "nemotron_h names biases of its Mamba-2 layers use_bias"},
		"mamba_hidden_act": {Value: "silu", Why: "nemotron_h has silu in its Mamba-2 layers"},
		"sliding_window":   {Value: nil, Why: "nemotron_h has no windows"},
	}}

// unused are keys that change nothing in training: how weights began, how a program computes, layers for multi-token
// prediction, and sizes that others repeat.
var unused = []string{"chunk_size", "expand", "mamba_ssm_cache_dtype", "moe_shared_expert_overlap",
	"mtp_hybrid_override_pattern", "mtp_layers_block_type", "n_shared_experts", "norm_eps", "num_logits_to_keep",
	"num_nextn_predict_layers", "rescale_prenorm_residual", "residual_in_fp32", "time_step_floor", "time_step_limit",
	"time_step_max", "time_step_rank", "use_mamba_kernels"}

// kinds maps the letters of hybrid_override_pattern to kinds of layers.
var kinds = map[rune]string{'M': model.LinearAttention, '*': model.FullAttention, '-': model.MLPLayer,
	'E': model.ExpertsLayer}

// layerTypes reads the kinds of the layers: from a list, under its name here or in other families, or from the pattern
// of former files, which a list overrides.
func layerTypes(k *model.Keys) (list []string) {
	pattern, own, general := "", k.Texts("layers_block_type"), k.Texts("layer_types")
	k.Text("hybrid_override_pattern", &pattern)
	switch {
	case own != nil:
		list = own
	case general != nil:
		list = general
	case pattern == "":
		return []string{model.LinearAttention, model.ExpertsLayer, model.FullAttention, model.MLPLayer}
	}
	if list == nil {
		for i, letter := range []rune(pattern) {
			kind, ok := kinds[letter]
			if !ok {
				k.Fail("hybrid_override_pattern", "[%d] = %q: supported are M, *, - and E", i, letter)
				kind = model.FullAttention
			}
			list = append(list, kind)
		}
	}
	return model.FormerKinds(list)
}

func readExperts(c *model.Config, k *model.Keys) {
	c.Experts = 8
	c.ReadExperts(k, 2, "n_routed_experts", "num_local_experts")
	c.ExpertSize, c.SharedSize, c.NormTopK, c.RouterAuxLoss = 7688, 7688, true, 0
	k.Int("moe_intermediate_size", &c.ExpertSize)
	k.Int("moe_shared_expert_intermediate_size", &c.SharedSize)
	if k.Int("moe_latent_size", &c.ExpertLatent) && (c.ExpertLatent < 1 || c.ExpertLatent > 1<<20) {
		k.Fail("moe_latent_size", "= %d: must be 1 to %d", c.ExpertLatent, 1<<20)
	}
	c.ReadRouting(k)
	for i, kind := range c.LayerTypes {
		if kind != model.ExpertsLayer {
			c.DenseLayers = append(c.DenseLayers, i)
		}
	}
	if !slices.Contains(c.LayerTypes, model.ExpertsLayer) {
		c.Experts, c.ExpertsPerToken, c.ExpertSize, c.SharedSize, c.ExpertLatent = 0, 0, 0, 0, 0
		c.Routing, c.DenseLayers, c.NormTopK = model.Routing{}, nil, false
	}
}

// Build applies the network to a batch, including the final norm: -> [M,C].
func Build(n *nn.Net, c model.Config, in nn.Batch) *nn.Value {
	s := c.StateSpace
	mamba := nn.Mamba{
		StateSpace: kernel.StateSpace{Heads: s.Heads, Groups: s.Groups, State: s.State, MinStep: s.MinStep},
		HeadSize:   s.HeadSize, Filter: s.Filter, ConvBias: s.ConvBias, Bias: s.Bias, Eps: c.RMSNormEps,
		NormGroups: s.Groups,
	}
	attention := nn.Attention{Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim}
	moe := mixtral.Experts(c, Names)
	moe.Latent, moe.Parameters = c.ExpertLatent, true
	var x *nn.Value
	n.In("model", func() {
		x = n.Embed("embed_tokens", c.VocabSize, c.HiddenSize, in.IDs) // [M,C]
		for i := range c.NumLayers {
			n.In(nn.Layer(i), func() {
				h := n.RMSNorm("norm", x, c.RMSNormEps)
				switch c.LayerTypes[i] {
				case model.LinearAttention:
					h = nn.Mamba2(n, mixer, h, in, mamba)
				case model.FullAttention:
					h = n.SelfAttention(mixer, h, in, attention)
				case model.MLPLayer:
					h = nn.MLP{Up: "up_proj", Down: "down_proj"}.Apply(n, mixer, h, c.IntermediateSize, false,
						c.HiddenAct)
				default:
					h = n.MoE(mixer, h, in.Real, moe)
				}
				x = n.Add(x, h)
			})
		}
		x = n.RMSNorm("norm_f", x, c.RMSNormEps)
	})
	return x
}
