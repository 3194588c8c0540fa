package llama

import (
	"slices"

	"github.com/tierlora/tierlora/model"
)

// Llama is what config.json says of a Llama model: biases are options, num_key_value_heads may be absent.
var Llama = model.Dialect{Architecture: "LlamaForCausalLM", KVHeadsOptional: true, Read: func(c *model.Config, k *model.Keys) {
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
	k.Bool("mlp_bias", &c.MLPBias)
	llamaWindows(c, k)
}}

// Mistral is Llama with a sliding window and without biases.
var Mistral = model.Dialect{Architecture: "MistralForCausalLM", Read: mistralWindows, Fixed: map[string]model.Fixed{
	"attention_bias": {Value: false, Why: "mistral has no biases"},
	"mlp_bias":       {Value: false, Why: "mistral has no biases"},
}}

// Qwen2 is Llama with biases on q, k and v, and a sliding window in some layers: Qwen2 and Qwen2.5.
var Qwen2 = model.Dialect{Architecture: "Qwen2ForCausalLM", Read: func(c *model.Config, k *model.Keys) {
	c.QKVBias = true
	qwen2Windows(c, k)
}, Fixed: map[string]model.Fixed{
	"attention_bias": {Value: true, Why: "qwen2 always has biases on q, k and v"},
	"mlp_bias":       {Value: false, Why: "qwen2 has no biases in its MLP"},
}}

// mistralWindows: one window for all layers, 4096 when the key is absent.
func mistralWindows(c *model.Config, k *model.Keys) {
	if !k.Has("sliding_window") {
		c.SlidingWindow = 4096
	}
	k.Int("sliding_window", &c.SlidingWindow)
	c.LayerTypes = k.Texts("layer_types")
	want := model.FullAttention
	if c.SlidingWindow > 0 {
		want = model.SlidingAttention
	}
	for i, kind := range c.LayerTypes {
		if kind != want {
			k.Fail("layer_types", "[%d] = %q: mistral's layers are alike, with sliding_window %d all are %s", i, kind, c.SlidingWindow, want)
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
	c.LayerTypes = k.Texts("layer_types")
	if c.SlidingWindow == 0 {
		if i := slices.Index(c.LayerTypes, model.SlidingAttention); i >= 0 {
			k.Fail("layer_types", "[%d] = %q but no window is in use (use_sliding_window, sliding_window)", i, model.SlidingAttention)
		}
		return
	}
	if c.LayerTypes == nil && c.NumLayers > 0 && c.NumLayers <= model.MaxLayers {
		c.LayerTypes = make([]string, c.NumLayers)
		for i := range c.LayerTypes {
			c.LayerTypes[i] = model.FullAttention
			if i >= first {
				c.LayerTypes[i] = model.SlidingAttention
			}
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
