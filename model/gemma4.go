package model

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Gemma4 holds the differences between layers of Gemma 4.
type Gemma4 struct {
	FullHeadDim, FullKVHeads int  // heads of full layers; HeadDim and NumKVHeads describe windowed layers
	ValuesAreKeys            bool // full layers use the output of k_proj, before norm and rotation, as values
	SharedKV                 int  // number of last layers that attend to an earlier layer's keys and values
	DoubleMLP                bool // layers with shared keys and values have twice the intermediate size
	// PerLayerInput is the number of columns that each layer gets per token besides the output of the layer before; 0 =
	// none.
	PerLayerInput int
	PerLayerVocab int // rows of the table of these columns
}

// Heads returns a layer's head size and number of key heads.
func (c Config) Heads(layer int) (size, kvHeads int) {
	if c.Gemma4 != (Gemma4{}) && c.Window(layer) == 0 {
		return c.Gemma4.FullHeadDim, c.Gemma4.FullKVHeads
	}
	return c.HeadDim, c.NumKVHeads
}

// KVLayer returns the layer whose keys and values a layer attends to: itself, or the last layer of its kind that has
// its own.
func (c Config) KVLayer(layer int) int {
	own := c.NumLayers - c.Gemma4.SharedKV
	if layer < own {
		return layer
	}
	for i := own - 1; i >= 0; i-- {
		if c.LayerTypes[i] == c.LayerTypes[layer] {
			return i
		}
	}
	return -1
}

// FullRope returns the configuration whose InvFreq belongs to the full layers.
func (c Config) FullRope() Config {
	c.HeadDim, c.Gemma4.FullHeadDim = c.fullHeadDim(), 0
	return c
}

func (c Config) fullHeadDim() int { return cmp.Or(c.Gemma4.FullHeadDim, c.HeadDim) }

// rotated returns the number of frequencies of a head that proportional rotation does not set to zero.
func (r RopeScaling) rotated(headDim int) int {
	return int(cmp.Or(r.Proportion, 1) * float64(headDim) / 2)
}

func (r *RopeScaling) readProportion(k *Keys) {
	if r.Type == "proportional" && k.Float("partial_rotary_factor", &r.Proportion) && !(r.Proportion > 0 &&
		r.Proportion <= 1) {
		k.Fail("partial_rotary_factor", "= %g: must be above 0 and at most 1", r.Proportion)
		r.Proportion = 1
	}
}

func (c Config) proportionalProblems(check func(ok bool, key, format string, args ...any)) {
	r := c.RopeScaling
	check(r.Factor == 0 || r.Factor >= 1 && r.Factor < 1e9, "rope_scaling.factor", "= %g: must be at least 1", r.Factor)
	check(c.HeadDim < 2 || r.rotated(c.fullHeadDim()) > 0, "rope_scaling.partial_rotary_factor",
		"= %g: rotates nothing of a head of %d", r.Proportion, c.fullHeadDim())
}

// proportional returns frequencies computed from the whole head size; only the first part of them is not zero.
func (c Config) proportional() []float64 {
	f := frequencies(c.RopeTheta, c.HeadDim)
	clear(f[c.RopeScaling.rotated(c.HeadDim):])
	for i := range f {
		f[i] /= cmp.Or(c.RopeScaling.Factor, 1)
	}
	return f
}

// ReadGemma4 reads the keys of Gemma 4's layers, whose kinds must be set. Files define the heads of full layers by
// global_head_dim and num_global_key_value_heads or, since transformers 5.17, for each layer in per_layer_config, which
// then has precedence. perLayer is the default width of a layer's own input.
func (c *Config) ReadGemma4(k *Keys, perLayer int) {
	g := &c.Gemma4
	*g = Gemma4{FullHeadDim: 512, FullKVHeads: c.NumKVHeads, PerLayerInput: perLayer, PerLayerVocab: 262144}
	k.Bool("attention_k_eq_v", &g.ValuesAreKeys)
	k.Int("global_head_dim", &g.FullHeadDim)
	if kv := 0; k.Int("num_global_key_value_heads", &kv) && g.ValuesAreKeys { // otherwise transformers ignores it
		g.FullKVHeads = kv
	}
	c.readPerLayer(k)
	k.Int("num_kv_shared_layers", &g.SharedKV)
	k.Bool("use_double_wide_mlp", &g.DoubleMLP)
	k.Int("hidden_size_per_layer_input", &g.PerLayerInput)
	if k.Int("vocab_size_per_layer_input", &g.PerLayerVocab); g.PerLayerInput == 0 {
		g.PerLayerVocab = 0
	}
}

// readPerLayer reads per_layer_config, whose keys are layer numbers. transformers 5.17 pads them with zeros to one
// width.
func (c *Config) readPerLayer(k *Keys) {
	var layers map[string]map[string]int
	if !k.take("per_layer_config", "an object of objects of whole numbers", &layers) ||
		len(c.LayerTypes) != c.NumLayers {
		return
	}
	type heads struct{ size, kv int }
	base, full := heads{c.HeadDim, c.NumKVHeads}, []heads{}
	byNumber := map[int]map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(layers)) {
		i, err := strconv.Atoi(key)
		if err != nil || strings.Trim(key, "0123456789") != "" || i >= c.NumLayers {
			k.Fail("per_layer_config", "names layer %q, of %d", key, c.NumLayers)
			return
		}
		if byNumber[i] != nil {
			k.Fail("per_layer_config", "names layer %d twice", i)
			return
		}
		for what := range layers[key] {
			if what != "head_dim" && what != "num_key_value_heads" {
				k.Fail("per_layer_config."+key,
					"has %s: only head_dim and num_key_value_heads differ from layer to layer", what)
				return
			}
		}
		byNumber[i] = layers[key]
		if byNumber[i] == nil { // null
			byNumber[i] = map[string]int{}
		}
	}
	for i, kind := range c.LayerTypes {
		of, own := byNumber[i], base
		if size, ok := of["head_dim"]; ok {
			own.size = size
		}
		if kv, ok := of["num_key_value_heads"]; ok {
			own.kv = kv
		}
		if kind == FullAttention {
			full = append(full, own)
		} else if own != base {
			k.Fail("per_layer_config",
				"has other heads for layer %d, which has a window: only those of full layers may differ", i)
			return
		}
	}
	for _, h := range full {
		if h != full[0] {
			k.Fail("per_layer_config",
				"has heads of %d and of %d, or other numbers of key heads, for full layers: they must be alike",
				full[0].size, h.size)
			return
		}
	}
	if len(full) > 0 {
		c.Gemma4.FullHeadDim, c.Gemma4.FullKVHeads = full[0].size, full[0].kv
	}
}

func (c Config) gemma4Problems(check func(ok bool, key, format string, args ...any)) {
	g := c.Gemma4
	if g == (Gemma4{}) {
		return
	}
	check(g.FullHeadDim >= 2 && g.FullHeadDim <= 1<<14 && g.FullHeadDim%2 == 0, "global_head_dim",
		"= %d: must be even, 2 to %d", g.FullHeadDim, 1<<14)
	check(g.FullKVHeads >= 1 && (c.NumHeads < 1 || c.NumHeads%g.FullKVHeads == 0) || g.FullKVHeads == c.NumKVHeads,
		"num_global_key_value_heads", "= %d does not divide num_attention_heads %d", g.FullKVHeads, c.NumHeads)
	check(g.PerLayerInput >= 0 && g.PerLayerInput <= 1<<16, "hidden_size_per_layer_input", "= %d: must be 0 to %d",
		g.PerLayerInput, 1<<16)
	check(g.PerLayerInput == 0 || g.PerLayerVocab >= c.VocabSize && g.PerLayerVocab <= 1<<24,
		"vocab_size_per_layer_input", "= %d: must be vocab_size %d or more", g.PerLayerVocab, c.VocabSize)
	if g.SharedKV < 0 || g.SharedKV > 0 && g.SharedKV >= c.NumLayers {
		check(c.NumLayers < 1, "num_kv_shared_layers", "= %d: must be 0 to %d", g.SharedKV, c.NumLayers-1)
		return
	}
	if len(c.LayerTypes) == c.NumLayers {
		for i := range c.NumLayers {
			check(c.KVLayer(i) >= 0, "num_kv_shared_layers",
				"= %d: no layer before them is a layer of %s, as layer %d is", g.SharedKV, c.LayerTypes[i], i)
		}
	}
}
