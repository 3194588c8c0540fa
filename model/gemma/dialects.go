package gemma

import (
	"cmp"
	"math"

	"github.com/tierlora/tierlora/model"
)

// sizes sets transformers' defaults for sizes that config.json omits; released files of Gemma 3 omit most.
func sizes(c *model.Config, vocab, width, inner, layers, heads, kvHeads, positions int) {
	c.VocabSize, c.HiddenSize, c.IntermediateSize, c.NumLayers = vocab, width, inner, layers
	c.NumHeads, c.NumKVHeads, c.HeadDim, c.MaxPositions = heads, kvHeads, 256, positions
	c.TieEmbeddings, c.HiddenAct = true, "gelu_pytorch_tanh"
}

// Gemma describes config.json of the first Gemma. transformers 4 reads hidden_act and not hidden_activation.
var Gemma = model.Dialect{Architecture: "GemmaForCausalLM", ActivationKey: "hidden_act",
	Defaults: func(c *model.Config) {
		sizes(c, 256000, 3072, 24576, 28, 16, 16, 8192)
	}, Read: func(c *model.Config, k *model.Keys) {
		biases(c, k)
		other := c.HiddenAct
		if k.Text("hidden_activation", &other); other != c.HiddenAct {
			k.Fail("hidden_activation", "= %q and hidden_act = %q contradict each other", other, c.HiddenAct)
		}
	}, Fixed: map[string]model.Fixed{
		"use_bidirectional_attention": {Value: false, Why: bidirectional},
		"sliding_window":              {Why: "the first gemma has no sliding window"},
	}}

// Gemma2 describes config.json of Gemma 2.
var Gemma2 = model.Dialect{Architecture: "Gemma2ForCausalLM", ActivationKey: "hidden_activation",
	Defaults: func(c *model.Config) {
		sizes(c, 256000, 2304, 9216, 26, 8, 4, 8192)
	}, Read: func(c *model.Config, k *model.Keys) {
		biases(c, k)
		scores(c, k)
		c.AttentionCap = softCap(k, "attn_logit_softcapping", 50)
		c.LogitCap = softCap(k, "final_logit_softcapping", 30)
		windows(c, k, 2)
		window := c.SlidingWindow
		// the first releases have it beside sliding_window
		if k.Int("sliding_window_size", &window); window != c.SlidingWindow {
			k.Fail("sliding_window_size", "= %d and sliding_window = %d contradict each other", window, c.SlidingWindow)
		}
	}, Fixed: map[string]model.Fixed{
		"use_bidirectional_attention": {Value: false, Why: bidirectional},
		"cache_implementation": {Value: "hybrid", Why: "the kind of cache says what layers see: only hybrid, " +
			"windows in some layers, is known"},
		"sliding_window_pattern": {Value: 2.0, Why: "gemma2 has a window in every second layer; layer_types says " +
			"other patterns"},
	}}

// Gemma3 describes config.json of Gemma 3's text model. The file may set a soft cap of the attention scores, which
// transformers does not apply.
var Gemma3 = model.Dialect{Architecture: "Gemma3ForCausalLM", ActivationKey: "hidden_activation", LayerRope: true,
	Defaults: func(c *model.Config) {
		sizes(c, 262208, 2304, 9216, 26, 8, 4, 131072)
		c.RopeTheta = 1e6
	}, Read: func(c *model.Config, k *model.Keys) {
		biases(c, k)
		scores(c, k)
		softCap(k, "attn_logit_softcapping", 0)
		c.LogitCap = softCap(k, "final_logit_softcapping", 0)
		pattern := 6
		if k.Int("sliding_window_pattern", &pattern); pattern < 1 {
			k.Fail("sliding_window_pattern", "= %d: must be 1 or more", pattern)
			pattern = 1
		}
		windows(c, k, pattern)
		localRope(c, k)
	}, Fixed: map[string]model.Fixed{
		"use_bidirectional_attention": {Value: false, Why: bidirectional},
		"cache_implementation": {Value: "hybrid", Why: "the kind of cache says what layers see: only hybrid, " +
			"windows in some layers, is known"},
	}}

// Gemma3Multimodal describes config.json of Gemma 3 with images. Only the language model is used.
var Gemma3Multimodal = model.Dialect{Architecture: "Gemma3ForConditionalGeneration",
	Text: map[string]model.Dialect{"gemma3_text": withImages}, TextType: "gemma3_text", Other: []string{
		"vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index",
		"boi_token_id", "eoi_token_id", "image_token_id",
	}}

// withImages is Gemma3 in a folder with images, for which transformers applies no soft cap to the logits.
var withImages = func() model.Dialect {
	d := Gemma3
	d.Read = func(c *model.Config, k *model.Keys) {
		if Gemma3.Read(c, k); c.LogitCap != 0 {
			k.Fail("final_logit_softcapping",
				"= %g: transformers does not apply it in a model with images: save the language model alone",
				c.LogitCap)
		}
	}
	return d
}()

// localRope reads the rotation of windowed layers.
func localRope(c *model.Config, k *model.Keys) {
	c.LocalRopeTheta, c.LocalRopeScaling = 10000, model.RopeScaling{Type: "default"}
	given := k.Float("rope_local_base_freq", &c.LocalRopeTheta)
	scaling, theta, ok := k.Rope("rope_parameters." + model.SlidingAttention)
	if !ok {
		return
	}
	c.LocalRopeScaling = scaling
	switch {
	case theta == 0:
	case given && theta != c.LocalRopeTheta:
		k.Fail("rope_local_base_freq", "= %g contradicts rope_parameters.%s.rope_theta = %g", c.LocalRopeTheta,
			model.SlidingAttention, theta)
	default:
		c.LocalRopeTheta = theta
	}
}

const bidirectional = "attention to later tokens is for embedding models; only causal language models are trained here"

func biases(c *model.Config, k *model.Keys) {
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
}

// scores reads query_pre_attn_scalar: scores are divided by its square root.
func scores(c *model.Config, k *model.Keys) {
	scalar := 256.0
	if k.Float("query_pre_attn_scalar", &scalar); !(scalar >= 1e-6 && scalar <= 1e9) {
		k.Fail("query_pre_attn_scalar", "= %g: must be above zero", scalar)
		return
	}
	c.AttentionScale = 1 / math.Sqrt(scalar)
}

// softCap reads a soft cap. If the key is missing it is absent, the releases' value; null means no cap.
func softCap(k *model.Keys, key string, absent float64) float64 {
	if !k.Has(key) {
		return absent
	}
	var cap float64
	if k.Float(key, &cap) && cap <= 0 {
		k.Fail(key, "= %g: must be above zero, or null for none", cap)
	}
	return cap
}

// windows gives a window to all layers but each pattern-th, or to those that layer_types names.
func windows(c *model.Config, k *model.Keys, pattern int) {
	c.SlidingWindow = cmp.Or(c.SlidingWindow, 4096)
	if given := k.Has("sliding_window"); given && !k.Int("sliding_window", &c.SlidingWindow) || c.SlidingWindow < 1 {
		k.Fail("sliding_window", "must be a number of tokens, 1 or more; layer_types says which layers have it")
	}
	if c.LayerTypes = k.Texts("layer_types"); c.LayerTypes == nil && c.NumLayers > 0 && c.NumLayers <= model.MaxLayers {
		c.LayerTypes = make([]string, c.NumLayers)
		for i := range c.LayerTypes {
			c.LayerTypes[i] = model.SlidingAttention
			if (i+1)%pattern == 0 {
				c.LayerTypes[i] = model.FullAttention
			}
		}
	}
}
