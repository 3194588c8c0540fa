package olmo2

import (
	"slices"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/nn"
)

// Exaone4 describes config.json of an EXAONE 4 model: OLMo 2 with a norm of every query and key head. Where the model
// has a window, layers without it are not rotated by positions.
var Exaone4 = model.Dialect{Architecture: "Exaone4ForCausalLM", Defaults: func(c *model.Config) {
	c.RMSNormEps = 1e-5
}, Read: func(c *model.Config, k *model.Keys) {
	c.QKNorm, c.SlidingWindow = true, 4096
	if given := k.Has("sliding_window"); given && !k.Int("sliding_window", &c.SlidingWindow) {
		c.SlidingWindow = 0 // null
	}
	c.LayerTypes = k.Texts("layer_types")
	pattern := 4
	if c.LayerTypes == nil && c.SlidingWindow > 0 {
		if k.Int("sliding_window_pattern", &pattern); pattern < 1 {
			k.Fail("sliding_window_pattern", "= %d: must be 1 or more", pattern)
			return
		}
		for i := range min(max(c.NumLayers, 0), model.MaxLayers) {
			kind := model.SlidingAttention
			if (i+1)%pattern == 0 {
				kind = model.FullAttention
			}
			c.LayerTypes = append(c.LayerTypes, kind)
		}
	}
	k.Drop("sliding_window_pattern") // layer_types says it
	if c.SlidingWindow > 0 && len(c.LayerTypes) == c.NumLayers {
		c.NoPositions = make([]bool, c.NumLayers)
		for i, kind := range c.LayerTypes {
			c.NoPositions[i] = kind == model.FullAttention
		}
	}
	switch i := slices.Index(c.LayerTypes, model.SlidingAttention); {
	case c.SlidingWindow == 0 && i >= 0:
		k.Fail("layer_types", "[%d] = %q but no window is in use (sliding_window)", i, model.SlidingAttention)
	case i < 0:
		c.SlidingWindow = 0
	}
}, Fixed: map[string]model.Fixed{
	"attention_bias": {Value: false, Why: "exaone4 has no biases"},
	"mlp_bias":       {Value: false, Why: "exaone4 has no biases"},
}}

// qkNorm returns the norm of queries and keys: of each head, or of all heads of a token together.
func qkNorm(n *nn.Net, c model.Config) func(name string, x *nn.Value, heads int) *nn.Value {
	if c.QKNorm {
		return func(name string, x *nn.Value, heads int) *nn.Value {
			return n.HeadsRMSNorm(name, x, heads, c.RMSNormEps)
		}
	}
	return func(name string, x *nn.Value, _ int) *nn.Value { return n.RMSNorm(name, x, c.RMSNormEps) }
}
