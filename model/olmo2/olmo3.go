package olmo2

import "github.com/tierlora/tierlora/model"

// Olmo3 describes config.json of an OLMo 3 model: OLMo 2 with a window in all layers but each fourth, or in those that
// layer_types names. Rotary scaling applies to full layers only; windowed layers may have a base of their own.
var Olmo3 = model.Dialect{Architecture: "Olmo3ForCausalLM", KVHeadsOptional: true, LayerRope: true,
	Defaults: func(c *model.Config) {
		Dialect.Defaults(c)
		c.RopeTheta = 500000 // as in transformers 5; transformers 4.57 always writes it
	}, Read: func(c *model.Config, k *model.Keys) {
		Dialect.Read(c, k)
		c.SlidingWindow = 4096
		if given := k.Has("sliding_window"); given && !k.Int("sliding_window", &c.SlidingWindow) ||
			c.SlidingWindow < 1 {
			k.Fail("sliding_window", "must be a number of tokens, 1 or more; layer_types says which layers have it")
		}
		if c.LayerTypes = k.Texts("layer_types"); c.LayerTypes == nil && c.NumLayers > 0 &&
			c.NumLayers <= model.MaxLayers {
			for i := range c.NumLayers {
				kind := model.SlidingAttention
				if i%4 == 3 {
					kind = model.FullAttention
				}
				c.LayerTypes = append(c.LayerTypes, kind)
			}
		}
		local, theta, ok := k.Rope("rope_parameters." + model.SlidingAttention)
		if theta == 0 {
			theta = c.RopeTheta
		}
		switch {
		case ok && local.Type != "default":
			k.Fail("rope_parameters."+model.SlidingAttention,
				"has rope_type = %q: only the plain rotation is supported there", local.Type)
		case c.RopeTheta > 1 && (c.RopeScaling.Type != "default" || theta != c.RopeTheta):
			c.LocalRopeTheta, c.LocalRopeScaling = theta, model.RopeScaling{Type: "default"}
		}
	}, Fixed: Dialect.Fixed}
