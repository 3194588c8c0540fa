package gemma

import "github.com/tierlora/tierlora/model"

// Gemma4 and Gemma4Unified describe config.json of Gemma 4's language model. Gemma4Unified is for folders whose images
// and sound have no networks of their own (the 12B); it has no per-layer inputs.
var (
	Gemma4        = gemma4("Gemma4ForCausalLM", 512, 131072, 256, readExperts4)
	Gemma4Unified = gemma4("Gemma4UnifiedForCausalLM", 1024, 262144, 0, noExperts4)
)

// gemma4 returns a dialect with the given defaults for the window, the context and the width of a layer's input, and
// with a reader of the experts' keys.
func gemma4(architecture string, window, context, perLayer int, experts func(c *model.Config,
	k *model.Keys)) model.Dialect {
	return model.Dialect{Architecture: architecture, ActivationKey: "hidden_activation", LayerRope: true,
		RopeTypes: map[string]string{"default": "default", "proportional": "proportional"},
		Rope:      &model.DefaultRope{Theta: 1e6, Scaling: model.RopeScaling{Type: "proportional", Proportion: 0.25}},
		Defaults: func(c *model.Config) {
			sizes(c, 262144, 2304, 9216, 30, 8, 4, context)
			c.RopeTheta, c.SlidingWindow = 1e6, window
		}, Read: func(c *model.Config, k *model.Keys) {
			readGemma4(c, k, perLayer)
			experts(c, k)
		}}
}

func readGemma4(c *model.Config, k *model.Keys, perLayer int) {
	biases(c, k)
	c.LogitCap = softCap(k, "final_logit_softcapping", 0)
	windows(c, k, 6)
	if n := len(c.LayerTypes); n > 0 { // transformers documents and does this
		c.LayerTypes[n-1] = model.FullAttention
	}
	if sliding := "rope_parameters." + model.SlidingAttention; k.Given("rope_parameters") && !k.Has(sliding) {
		k.Fail(sliding, "is missing: each kind of layer has a rotation of its own")
	}
	if k.Given("rope_scaling") {
		k.Fail("rope_scaling", "is not read by gemma4: rope_parameters has the rotation of each kind of layer")
	}
	localRope(c, k)
	c.ReadGemma4(k, perLayer)
	seen := ""
	if k.Text("use_bidirectional_attention", &seen); seen != "" && seen != "vision" { // applies to images only
		k.Fail("use_bidirectional_attention", "= %q: %s", seen, bidirectional)
	}
}

// readExperts4 reads the keys of the mixture of experts, which transformers reads only if there is a mixture.
func readExperts4(c *model.Config, k *model.Keys) {
	moe := false
	if k.Bool("enable_moe_block", &moe); !moe {
		dropExperts4(k)
		return
	}
	for key, n := range map[string]*int{"num_experts": &c.Experts, "top_k_experts": &c.ExpertsPerToken,
		"moe_intermediate_size": &c.ExpertSize} {
		if !k.Int(key, n) {
			k.Fail(key, "is missing: enable_moe_block is true")
		}
	}
	if c.Experts < 1 {
		k.Fail("num_experts", "= %d: must be 1 to %d", c.Experts, model.MaxExperts)
	} else if c.ExpertsPerToken < 1 || c.ExpertsPerToken > min(c.Experts, model.MaxExpertsPerToken) {
		k.Fail("top_k_experts", "= %d: must be 1 to %d, and at most the %d experts", c.ExpertsPerToken,
			model.MaxExpertsPerToken, c.Experts)
		c.ExpertsPerToken = 1
	}
}

// noExperts4 reports a mixture of experts in a family that has none in transformers.
func noExperts4(_ *model.Config, k *model.Keys) {
	moe := false
	if k.Bool("enable_moe_block", &moe); moe {
		k.Fail("enable_moe_block", "= true: gemma4_unified has no experts in transformers")
	}
	dropExperts4(k)
}

func dropExperts4(k *model.Keys) {
	for _, key := range []string{"num_experts", "top_k_experts", "moe_intermediate_size"} {
		k.Drop(key)
	}
}

// Gemma4Multimodal describes config.json of Gemma 4 with images and sound. Only the language model is used.
var Gemma4Multimodal = model.Dialect{Architecture: "Gemma4ForConditionalGeneration",
	Text: map[string]model.Dialect{"gemma4_text": Gemma4}, TextType: "gemma4_text", Other: []string{
		"vision_config", "audio_config", "boi_token_id", "eoi_token_id", "image_token_id", "video_token_id",
		"boa_token_id", "eoa_token_id", "eoa_token_index", "audio_token_id",
		"vision_soft_tokens_per_image",
	}}

// Gemma4UnifiedMultimodal describes config.json of a folder whose language model is Gemma4Unified.
var Gemma4UnifiedMultimodal = model.Dialect{Architecture: "Gemma4UnifiedForConditionalGeneration",
	Text:     map[string]model.Dialect{"gemma4_unified_text": Gemma4Unified},
	TextType: "gemma4_unified_text", Other: Gemma4Multimodal.Other}

// UnusedOf4 lists patterns of tensors that Gemma 4's language model does not use: those of images and sound.
var UnusedOf4 = []string{"model.vision_tower.*", "model.vision_embedder.*", "model.embed_vision.*",
	"model.audio_tower.*", "model.embed_audio.*"}
