package olmo2

import "github.com/tierlora/tierlora/model"

// Olmo3 is what config.json says of an OLMo 3 model: OLMo 2 with a window in all layers but each fourth, or in those that
// layer_types names. The scaling of the rotary frequencies is that of the full layers alone.
var Olmo3 = model.Dialect{Architecture: "Olmo3ForCausalLM", KVHeadsOptional: true, LayerRope: true, Defaults: Dialect.Defaults, Read: func(c *model.Config, k *model.Keys) {
	Dialect.Read(c, k)
	c.SlidingWindow = 4096
	if given := k.Has("sliding_window"); given && !k.Int("sliding_window", &c.SlidingWindow) || c.SlidingWindow < 1 {
		k.Fail("sliding_window", "must be a number of tokens, 1 or more; layer_types says which layers have it")
	}
	if c.LayerTypes = k.Texts("layer_types"); c.LayerTypes == nil && c.NumLayers > 0 && c.NumLayers <= model.MaxLayers {
		for i := range c.NumLayers {
			kind := model.SlidingAttention
			if i%4 == 3 {
				kind = model.FullAttention
			}
			c.LayerTypes = append(c.LayerTypes, kind)
		}
	}
	local, theta, ok := k.Rope("rope_parameters." + model.SlidingAttention)
	switch {
	case ok && (local.Type != "default" || theta != 0 && theta != c.RopeTheta):
		k.Fail("rope_parameters."+model.SlidingAttention, "is not the plain rotation with rope_theta = %g, which olmo3 has there", c.RopeTheta)
	case c.RopeScaling.Type != "default" && c.RopeTheta > 1:
		c.LocalRopeTheta, c.LocalRopeScaling = c.RopeTheta, model.RopeScaling{Type: "default"}
	}
}, Fixed: Dialect.Fixed}
