// Package qwen35 builds Qwen3.5: three of four layers have linear attention by the gated delta rule, the fourth has
// attention with a gated output, and all have an MLP or, in the mixtures, experts with a shared one. Names are the
// checkpoint's.
package qwen35

import "github.com/tierlora/tierlora/model"

// Text describes config.json of Qwen3.5's language model. Absent keys have the values of Qwen3.5-9B.
var Text = model.Dialect{Architecture: "Qwen3_5ForCausalLM", KVHeadsOptional: true, PartialRotary: true, MRoPE: true,
	SiLU: true, Defaults: func(c *model.Config) {
		c.HeadDim, c.PartialRotary, c.NumKVHeads = 256, 0.25, 4
		c.DeltaNet = model.DeltaNet{KeyHeads: 16, ValueHeads: 32, KeySize: 128, ValueSize: 128, Filter: 4}
	}, Read: readText, Fixed: fixed}

// MixtureText is Text with experts. Absent keys have the values of Qwen3.5-35B-A3B.
var MixtureText = model.Dialect{Architecture: "Qwen3_5MoeForCausalLM", KVHeadsOptional: true, PartialRotary: true,
	MRoPE: true, SiLU: true, Defaults: func(c *model.Config) {
		Text.Defaults(c)
		c.NumKVHeads, c.IntermediateSize = 2, 512 // no layer has an MLP of intermediate_size
	}, Read: func(c *model.Config, k *model.Keys) {
		readText(c, k)
		c.Experts = 256
		c.ReadExperts(k, 8, "num_experts", "num_local_experts")
		c.NormTopK = true
		model.ReadExpertSizes(c, k, 512, 512)
	}, Fixed: mixtureFixed}

// Next describes config.json of Qwen3-Next: Qwen3.5's mixtures with fused projections of linear attention and the
// options of Qwen3's mixtures. Absent keys have the values of Qwen3-Next-80B-A3B.
var Next = model.Dialect{Architecture: "Qwen3NextForCausalLM", KVHeadsOptional: true, PartialRotary: true, SiLU: true,
	Defaults: func(c *model.Config) {
		Text.Defaults(c)
		c.NumKVHeads = 2
	}, Read: func(c *model.Config, k *model.Keys) {
		k.Bool("attention_bias", &c.QKVBias)
		c.OBias = c.QKVBias
		c.ReadDeltaNet(k)
		c.DeltaNet.Fused = true
		c.Experts, c.NormTopK = 512, true
		c.ReadExperts(k, 10, "num_experts", "num_local_experts")
		model.ReadExpertSizes(c, k, 512, 512)
		k.Bool("norm_topk_prob", &c.NormTopK)
		model.ReadDenseLayers(c, k)
	}, Fixed: map[string]model.Fixed{
		"mlp_bias":           {Value: false, Why: "qwen3_next has no biases in its MLPs"},
		"use_sliding_window": {Value: false, Why: "qwen3_next has no windows"},
	}}

// Folder is Text, and MixtureFolder is MixtureText, in a folder with images, as in the releases.
var (
	Folder = model.Dialect{Architecture: "Qwen3_5ForConditionalGeneration",
		Text: map[string]model.Dialect{"qwen3_5_text": Text}, TextType: "qwen3_5_text", Other: ofImages}
	MixtureFolder = model.Dialect{Architecture: "Qwen3_5MoeForConditionalGeneration",
		Text: map[string]model.Dialect{"qwen3_5_moe_text": MixtureText}, TextType: "qwen3_5_moe_text", Other: ofImages}
)

var ofImages = []string{"vision_config", "image_token_id", "video_token_id", "vision_start_token_id",
	"vision_end_token_id", "language_model_only"}

// Unused lists patterns of tensors that the language model does not use: those of images, and the layers for
// multi-token prediction.
var Unused = []string{"model.visual.*", "mtp.*"}

func readText(c *model.Config, k *model.Keys) {
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
	c.ReadDeltaNet(k)
	gate := "swish"
	if k.Text("output_gate_type", &gate); gate != "swish" && gate != "silu" {
		k.Fail("output_gate_type", "= %q: only swish is supported", gate)
	}
	// not of the language model; fp32 as here
	for _, key := range []string{"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"} {
		k.Drop(key)
	}
}

var fixed = map[string]model.Fixed{
	"mlp_bias":         {Value: false, Why: "qwen3_5 has no biases in its MLP"},
	"attn_output_gate": {Value: true, Why: "qwen3_5 always gates what attention gives"},
	"mlp_only_layers":  {Value: nil, Why: "qwen3_5's layers are alike"},
}

var mixtureFixed = map[string]model.Fixed{
	"mlp_bias":            fixed["mlp_bias"],
	"attn_output_gate":    fixed["attn_output_gate"],
	"mlp_only_layers":     fixed["mlp_only_layers"],
	"decoder_sparse_step": {Value: 1.0, Why: "all layers of qwen3_5_moe have experts"},
	"norm_topk_prob":      {Value: true, Why: "qwen3_5_moe always divides a token's weights by their sum"},
}
