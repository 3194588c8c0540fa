package model

import "slices"

// ReadWindowPattern reads a window and the kinds of layers of a family in which all layers but each fourth, or but each
// sliding_window_pattern-th, have a window if layer_types is missing. Where layers have a window, those without it are
// not rotated by positions.
func ReadWindowPattern(c *Config, k *Keys) {
	c.SlidingWindow = 4096
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
		for i := range min(max(c.NumLayers, 0), MaxLayers) {
			kind := SlidingAttention
			if (i+1)%pattern == 0 {
				kind = FullAttention
			}
			c.LayerTypes = append(c.LayerTypes, kind)
		}
	}
	k.Drop("sliding_window_pattern") // layer_types says it
	if c.SlidingWindow > 0 && len(c.LayerTypes) == c.NumLayers {
		c.NoPositions = make([]bool, c.NumLayers)
		for i, kind := range c.LayerTypes {
			c.NoPositions[i] = kind == FullAttention
		}
	}
	switch i := slices.Index(c.LayerTypes, SlidingAttention); {
	case c.SlidingWindow == 0 && i >= 0:
		k.Fail("layer_types", "[%d] = %q but no window is in use (sliding_window)", i, SlidingAttention)
	case i < 0:
		c.SlidingWindow = 0
	}
}
