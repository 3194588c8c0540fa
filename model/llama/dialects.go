package llama

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/model"
)

// Llama describes config.json of a Llama model: biases are optional, num_key_value_heads may be absent.
var Llama = model.Dialect{Architecture: "LlamaForCausalLM", KVHeadsOptional: true, Read: func(c *model.Config,
	k *model.Keys) {
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
	k.Bool("mlp_bias", &c.MLPBias)
	llamaWindows(c, k)
}}

// Arcee is Llama with MLPs without a gate, of the squared rectifier (AFM-4.5B).
var Arcee = model.Dialect{Architecture: "ArceeForCausalLM", KVHeadsOptional: true, Ungated: model.ReLU2,
	Defaults: func(c *model.Config) {
		c.RMSNormEps, c.HiddenAct = 1e-5, model.ReLU2
	}, Read: Llama.Read}

// Mistral is Llama with a sliding window and without biases.
var Mistral = model.Dialect{Architecture: "MistralForCausalLM", Read: func(c *model.Config, k *model.Keys) {
	alikeWindows(c, k, "mistral", 4096)
}, Fixed: map[string]model.Fixed{
	"attention_bias": {Value: false, Why: "mistral has no biases"},
	"mlp_bias":       {Value: false, Why: "mistral has no biases"},
}}

// Ministral3 is Mistral with queries that grow with their position (Ministral 3). Absent keys have the values of the 8B
// release.
var Ministral3 = model.Dialect{Architecture: "Ministral3ForCausalLM", QueryScale: true,
	Rope: &model.DefaultRope{Theta: 1e6, Scaling: model.RopeScaling{
		Type: "yarn", Factor: 16, OriginalMaxPositions: 16384, BetaFast: 32, BetaSlow: 1, MScale: 1, MScaleAllDim: 1,
		QueryBeta: 0.1,
	}}, Defaults: func(c *model.Config) {
		c.VocabSize, c.HiddenSize, c.IntermediateSize, c.NumLayers, c.MaxPositions = 131072, 4096, 14336, 34, 262144
		c.NumHeads, c.NumKVHeads, c.HeadDim, c.RMSNormEps = 32, 8, 128, 1e-5
	}, Read: func(c *model.Config, k *model.Keys) {
		alikeWindows(c, k, "ministral3", 0)
	}, Fixed: map[string]model.Fixed{
		"attention_bias": {Value: false, Why: "ministral3 has no biases"},
		"mlp_bias":       {Value: false, Why: "ministral3 has no biases"},
	}}

// Mistral3 is Mistral in a folder with images (Mistral Small 3.1, 3.2 and Magistral), or Ministral3. Only the language
// model is used.
var Mistral3 = model.Dialect{Architecture: "Mistral3ForConditionalGeneration",
	Text: map[string]model.Dialect{"mistral": Mistral, "ministral3": Ministral3}, TextType: "mistral", Other: []string{
		"vision_config", "vision_feature_layer", "spatial_merge_size", "image_token_index", "image_token_id",
		"projector_hidden_act", "multimodal_projector_bias",
	}}

// Qwen2 is Llama with biases on q, k and v, and a sliding window in some layers (Qwen2 and Qwen2.5).
var Qwen2 = model.Dialect{Architecture: "Qwen2ForCausalLM", Read: func(c *model.Config, k *model.Keys) {
	c.QKVBias = true
	qwen2Windows(c, k)
}, Fixed: map[string]model.Fixed{
	"attention_bias": {Value: true, Why: "qwen2 always has biases on q, k and v"},
	"mlp_bias":       {Value: false, Why: "qwen2 has no biases in its MLP"},
}}

// Qwen3 is Llama with a norm of every query and key head, optional biases, and Qwen2's windows.
var Qwen3 = model.Dialect{Architecture: "Qwen3ForCausalLM", Defaults: func(c *model.Config) {
	c.HeadDim = 128
}, Read: func(c *model.Config, k *model.Keys) {
	c.QKNorm = true
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
	qwen2Windows(c, k)
}, Fixed: map[string]model.Fixed{
	"mlp_bias": {Value: false, Why: "qwen3 has no biases in its MLP"},
}}

// unappliedDropout reads a dropout of attention or of layer outputs, which some releases set. Training does not apply
// it and the run reports that: evaluation is the same, and training equals that of attention kernels without dropout.
func unappliedDropout(c *model.Config, k *model.Keys, absent float64, keys ...string) {
	for _, key := range keys {
		dropout := absent // transformers' default for a missing key
		switch given := k.Float(key, &dropout); {
		case given && !(dropout >= 0 && dropout < 1):
			k.Fail(key, "= %g: must be at least 0 and below 1", dropout)
		case dropout > 0:
			c.Unapplied = append(c.Unapplied, fmt.Sprintf("%s %g", key, dropout))
		}
	}
}

// SeedOSS is Llama with biases on q, k and v; o has one only if attention_out_bias is set (Seed-OSS).
var SeedOSS = model.Dialect{Architecture: "SeedOssForCausalLM", Defaults: func(c *model.Config) {
	c.HeadDim = 128
}, Read: func(c *model.Config, k *model.Keys) {
	c.QKVBias = true
	k.Bool("attention_bias", &c.QKVBias)
	k.Bool("attention_out_bias", &c.OBias)
	k.Bool("mlp_bias", &c.MLPBias)
	unappliedDropout(c, k, 0.1, "attention_dropout", "residual_dropout")
}}

// Ernie is Llama with a rotation of neighbouring columns and an option for biases of all linear layers: ERNIE 4.5.
// Folders of the release name code of their own, which became transformers'.
var Ernie = model.Dialect{Architecture: "Ernie4_5ForCausalLM", Former: "Ernie4_5_ForCausalLM",
	Defaults: func(c *model.Config) {
		c.RMSNormEps, c.RopeTheta, c.HeadDim, c.TieEmbeddings, c.Interleaved = 1e-5, 500000, 128, true, true
	}, Read: func(c *model.Config, k *model.Keys) {
		k.OwnCode("Ernie4_5_ForCausalLM")
		k.Bool("use_bias", &c.QKVBias)
		c.OBias, c.MLPBias = c.QKVBias, c.QKVBias
	}, Fixed: map[string]model.Fixed{
		"attention_bias": {Value: nil, Why: "ernie4_5 says it by use_bias"},
		"mlp_bias":       {Value: nil, Why: "ernie4_5 says it by use_bias"},
	}}

// Granite is Llama with four multipliers.
var Granite = model.Dialect{Architecture: "GraniteForCausalLM", KVHeadsOptional: true, Read: func(c *model.Config,
	k *model.Keys) {
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
	k.Bool("mlp_bias", &c.MLPBias)
	unappliedDropout(c, k, 0, "attention_dropout")
	c.EmbeddingScale, c.ResidualScale, c.AttentionScale, c.LogitDivisor = 1, 1, 1, 1
	for key, v := range map[string]*float64{"embedding_multiplier": &c.EmbeddingScale,
		"residual_multiplier":  &c.ResidualScale,
		"attention_multiplier": &c.AttentionScale, "logits_scaling": &c.LogitDivisor} {
		if k.Float(key, v); *v == 0 {
			k.Fail(key, "= 0: must not be zero")
		}
	}
}}

// Ministral is Mistral with a window in the layers that layer_types names.
var Ministral = model.Dialect{Architecture: "MinistralForCausalLM", Read: func(c *model.Config, k *model.Keys) {
	if !k.Has("sliding_window") {
		c.SlidingWindow = 4096
	}
	k.Int("sliding_window", &c.SlidingWindow)
	layerTypes(c, k, "sliding_window")
}, Fixed: map[string]model.Fixed{
	"attention_bias": {Value: false, Why: "ministral has no biases"},
	"mlp_bias":       {Value: false, Why: "ministral has no biases"},
}}

// layerTypes takes layer_types of a model whose window, 0 = none, is read; keys are those that switch it on.
func layerTypes(c *model.Config, k *model.Keys, keys string) {
	c.LayerTypes = k.Texts("layer_types")
	i := slices.Index(c.LayerTypes, model.SlidingAttention)
	switch {
	case c.SlidingWindow == 0 && i >= 0:
		k.Fail("layer_types", "[%d] = %q but no window is in use (%s)", i, model.SlidingAttention, keys)
	case c.LayerTypes != nil && i < 0:
		c.SlidingWindow = 0
	}
}

// alikeWindows reads one window for all layers, or none. absent is the default when the key is missing.
func alikeWindows(c *model.Config, k *model.Keys, family string, absent int) {
	if !k.Has("sliding_window") {
		c.SlidingWindow = absent
	}
	k.Int("sliding_window", &c.SlidingWindow)
	c.LayerTypes = k.Texts("layer_types")
	want := model.FullAttention
	if c.SlidingWindow > 0 {
		want = model.SlidingAttention
	}
	for i, kind := range c.LayerTypes {
		if kind != want {
			k.Fail("layer_types", "[%d] = %q: %s's layers are alike, with sliding_window %d all are %s", i, kind,
				family, c.SlidingWindow, want)
			break
		}
	}
}

// qwen2Windows: a window only with use_sliding_window, in the layers from
// max_window_layers on or in those that layer_types names.
func qwen2Windows(c *model.Config, k *model.Keys) {
	var use bool
	k.Bool("use_sliding_window", &use)
	window, first := 4096, 28
	given := k.Has("sliding_window")
	if !k.Int("sliding_window", &window) && given {
		window = 0 // null
	}
	k.Int("max_window_layers", &first)
	if use {
		c.SlidingWindow = window
	}
	layerTypes(c, k, "use_sliding_window, sliding_window")
	if c.LayerTypes == nil && c.SlidingWindow != 0 {
		windowed(c, func(i int) bool { return i >= first })
	}
}

// windowed gives the window to the layers that in tells, where layer_types does not say it.
func windowed(c *model.Config, in func(layer int) bool) {
	if c.NumLayers < 1 || c.NumLayers > model.MaxLayers {
		return // which is an error already
	}
	c.LayerTypes = make([]string, c.NumLayers)
	for i := range c.LayerTypes {
		c.LayerTypes[i] = model.FullAttention
		if in(i) {
			c.LayerTypes[i] = model.SlidingAttention
		}
	}
	if !slices.Contains(c.LayerTypes, model.SlidingAttention) {
		c.SlidingWindow = 0
	}
}

// llamaWindows: llama has none; a qwen2 file renamed to llama may still carry
// the keys, switched off.
func llamaWindows(c *model.Config, k *model.Keys) {
	use, window := true, 0
	if k.Has("use_sliding_window") {
		k.Bool("use_sliding_window", &use)
	}
	if k.Int("sliding_window", &window) && use {
		k.Fail("sliding_window", "= %d: llama has no sliding window", window)
	}
	k.Drop("max_window_layers")
	for i, kind := range k.Texts("layer_types") {
		if kind != model.FullAttention {
			k.Fail("layer_types", "[%d] = %q: llama has only %s", i, kind, model.FullAttention)
			break
		}
	}
}

// qwen3VLText is Qwen3 with a rotation that images divide among three coordinates, which are equal for text, and
// without windows.
var qwen3VLText = model.Dialect{Architecture: "Qwen3VLTextModel", MRoPE: true, Defaults: func(c *model.Config) {
	c.HeadDim, c.RopeTheta = 128, 500000
}, Read: func(c *model.Config, k *model.Keys) {
	c.QKNorm = true
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
}, Fixed: map[string]model.Fixed{
	"mlp_bias": {Value: false, Why: "qwen3_vl has no biases in its MLP"},
}}

// Qwen3VL describes config.json of a Qwen3-VL folder with images. Only the language model is used.
var Qwen3VL = model.Dialect{Architecture: "Qwen3VLForConditionalGeneration",
	Text: map[string]model.Dialect{"qwen3_vl_text": qwen3VLText}, TextType: "qwen3_vl_text", Other: []string{
		"vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id",
	}}

// Qwen3VLUnused lists patterns of tensors of a Qwen3-VL folder that the language model does not use.
var Qwen3VLUnused = []string{"model.visual.*"}

// idefics3Text is Llama with keys from the model's training that nothing reads.
var idefics3Text = model.Dialect{Architecture: "LlamaForCausalLM", KVHeadsOptional: true, Defaults: Llama.Defaults,
	Read: func(c *model.Config, k *model.Keys) {
		Llama.Read(c, k)
		for _, key := range []string{"_flash_attn_2_enabled", "is_llama_config", "neftune_noise_alpha",
			"perceiver_config", "pixel_shuffle_factor", "qk_layer_norms", "rope_interleaved", "transformers.js_config",
			"use_resampler"} {
			k.Drop(key)
		}
	}}

// ofIdefics3 lists the keys of an Idefics 3 folder that concern images.
var ofIdefics3 = []string{"vision_config", "image_token_id", "scale_factor", "image_seq_len"}

// Idefics3 describes config.json of an Idefics 3 folder, or of a SmolVLM folder of the same layout.
var Idefics3 = model.Dialect{Architecture: "Idefics3ForConditionalGeneration", TextScope: "model.text_model",
	Text: map[string]model.Dialect{"llama": idefics3Text}, TextType: "llama", Other: ofIdefics3}

// SmolVLM describes config.json of a SmolVLM 2 folder.
var SmolVLM = model.Dialect{Architecture: "SmolVLMForConditionalGeneration", TextScope: "model.text_model",
	Text: map[string]model.Dialect{"llama": idefics3Text}, TextType: "llama", Other: ofIdefics3}

// Idefics3Unused lists patterns of tensors of such a folder that the language model does not use: the image tower and
// the projector, which package vision/tower reads.
var Idefics3Unused = []string{"model.vision_model.*", "model.connector.*"}

// CWM is Llama with a window in the layers that layer_types names, or in all but each fourth from the first on. Absent
// keys have the values of the 32B release.
var CWM = model.Dialect{Architecture: "CwmForCausalLM", KVHeadsOptional: true, Rope: &model.DefaultRope{Theta: 1e6,
	Scaling: model.RopeScaling{Type: "llama3", Factor: 16, OriginalMaxPositions: 8192, LowFreqFactor: 1,
		HighFreqFactor: 4}}, Defaults: func(c *model.Config) {
	c.HeadDim, c.RMSNormEps, c.RopeTheta = 128, 1e-5, 1e6
}, Read: func(c *model.Config, k *model.Keys) {
	c.SlidingWindow = 8192
	if given := k.Has("sliding_window"); given && !k.Int("sliding_window", &c.SlidingWindow) {
		c.SlidingWindow = 0 // null
	}
	layerTypes(c, k, "sliding_window")
	if c.LayerTypes == nil && c.SlidingWindow != 0 {
		windowed(c, func(i int) bool { return i%4 != 0 })
	}
}, Fixed: map[string]model.Fixed{
	"attention_bias": {Value: false, Why: "cwm has no biases"},
	"mlp_bias":       {Value: false, Why: "cwm has no biases"},
}}

// HunYuan is Llama with a norm of every query and key head behind the rotation, which may be stretched by a number of
// its own (Hunyuan 0.5B to 7B, Hunyuan-MT).
var HunYuan = model.Dialect{Architecture: "HunYuanDenseV1ForCausalLM", KVHeadsOptional: true, RopeAlpha: true,
	Defaults: func(c *model.Config) {
		c.RMSNormEps = 1e-5
	}, Read: func(c *model.Config, k *model.Keys) {
		c.QKNorm, c.LateQKNorm = true, true
		k.Bool("attention_bias", &c.QKVBias)
		c.OBias = c.QKVBias
		unappliedDropout(c, k, 0, "attention_dropout")
		for _, key := range []string{"add_classification_head", "attention_head_dim", "cla_share_factor", "class_num",
			"dense_list", "eod_token_id", "im_end_id", "im_newline_id", "im_start_id", "mask_init_id", "org_vocab_size",
			"pad_id", "pool_type", "sep_token_id", "text_end_id", "text_start_id"} {
			k.Drop(key) // of tasks and inputs that the language model does not have
		}
		k.OwnCode("HunYuanDenseV1ForCausalLM")
	}, Fixed: map[string]model.Fixed{
		"mlp_bias":           {Value: false, Why: "hunyuan_v1_dense has no biases in its MLP"},
		"norm_type":          {Value: "rms", Why: "hunyuan_v1_dense norms by RMSNorm"},
		"use_cla":            {Value: false, Why: "keys and values that layers share are not supported"},
		"use_qk_norm":        {Value: true, Why: "hunyuan_v1_dense always norms queries and keys"},
		"use_rotary_pos_emb": {Value: true, Why: "hunyuan_v1_dense rotates queries and keys"},
	}}
