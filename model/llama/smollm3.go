package llama

import "github.com/tierlora/tierlora/model"

// SmolLM3 is Llama with layers without positions, which may have a window.
var SmolLM3 = model.Dialect{Architecture: "SmolLM3ForCausalLM", Defaults: func(c *model.Config) {
	c.RopeTheta, c.TieEmbeddings = 2e6, true
}, Read: func(c *model.Config, k *model.Keys) {
	k.Bool("attention_bias", &c.QKVBias)
	c.OBias = c.QKVBias
	k.Bool("mlp_bias", &c.MLPBias)
	k.Drop("max_window_layers") // in the releases' files; nothing reads it
	noPositions(c, k)
	var use bool
	var window int
	k.Bool("use_sliding_window", &use)
	if k.Int("sliding_window", &window) && use {
		c.SlidingWindow = window
	}
	layerTypes(c, k, "use_sliding_window, sliding_window")
	if c.LayerTypes == nil && c.SlidingWindow != 0 {
		windowed(c, func(i int) bool { return i < len(c.NoPositions) && c.NoPositions[i] })
	}
}}

// noPositions reads which layers have no positions: those with a 0 in no_rope_layers, or by default each
// no_rope_layer_interval-th layer (default: each fourth).
func noPositions(c *model.Config, k *model.Keys) {
	interval := 4
	if k.Int("no_rope_layer_interval", &interval); interval < 1 {
		k.Fail("no_rope_layer_interval", "= %d: must be at least 1", interval)
		return
	}
	list, given := k.Ints("no_rope_layers")
	if c.NumLayers < 1 || c.NumLayers > model.MaxLayers {
		return // reported as an error already
	}
	if given && len(list) < c.NumLayers {
		k.Fail("no_rope_layers", "names %d layers, num_hidden_layers is %d", len(list), c.NumLayers)
		return
	}
	c.NoPositions = make([]bool, c.NumLayers)
	for i := range c.NoPositions {
		c.NoPositions[i] = (i+1)%interval == 0
		if given {
			c.NoPositions[i] = list[i] == 0
		}
	}
}
