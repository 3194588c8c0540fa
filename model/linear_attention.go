package model

import "slices"

// LinearAttention is a value of layer_types.
const LinearAttention = "linear_attention"

// ConvLayer is a value of layer_types: a short convolution in place of attention.
const ConvLayer = "conv"

// MLPLayer and ExpertsLayer are values of layer_types where Config.OneMixer is true.
const (
	MLPLayer     = "mlp"
	ExpertsLayer = "moe"
)

// DeltaNet holds the sizes of linear attention layers that use the gated delta rule.
type DeltaNet struct {
	KeyHeads   int
	ValueHeads int // a multiple of KeyHeads
	KeySize    int // columns of a head
	ValueSize  int
	Filter     int // number of tokens in the window of the convolution before the rule
	// Fused reports that a layer has two projections, whose rows come key head by key head, in place of four.
	Fused bool
}

// maxFilter is the largest DeltaNet.Filter.
const maxFilter = 64

// LinearLayer reports whether a layer has linear attention.
func (c Config) LinearLayer(layer int) bool {
	return c.LayerTypes != nil && c.LayerTypes[layer] == LinearAttention
}

// ReadDeltaNet reads the keys of linear attention, whose defaults must be set, and which layers use it: those that
// layer_types names, or all but the last of every full_attention_interval.
func (c *Config) ReadDeltaNet(k *Keys) {
	d := &c.DeltaNet
	k.Int("linear_num_key_heads", &d.KeyHeads)
	k.Int("linear_num_value_heads", &d.ValueHeads)
	k.Int("linear_key_head_dim", &d.KeySize)
	k.Int("linear_value_head_dim", &d.ValueSize)
	k.Int("linear_conv_kernel_dim", &d.Filter)
	interval := 4
	if k.Int("full_attention_interval", &interval); interval < 1 {
		k.Fail("full_attention_interval", "= %d: must be 1 or more", interval)
		interval = 1
	}
	if c.LayerTypes = k.Texts("layer_types"); c.LayerTypes == nil && c.NumLayers > 0 && c.NumLayers <= MaxLayers {
		for i := range c.NumLayers {
			kind := LinearAttention
			if (i+1)%interval == 0 {
				kind = FullAttention
			}
			c.LayerTypes = append(c.LayerTypes, kind)
		}
	}
	if i := slices.Index(c.LayerTypes, SlidingAttention); i >= 0 {
		k.Fail("layer_types", "[%d] = %q: this family has no windows", i, SlidingAttention)
	}
}

func (c Config) deltaNetProblems(check func(ok bool, key, format string, args ...any)) {
	d := c.DeltaNet
	if d == (DeltaNet{}) {
		return
	}
	for key, v := range map[string]int{"linear_num_key_heads": d.KeyHeads, "linear_num_value_heads": d.ValueHeads,
		"linear_key_head_dim": d.KeySize, "linear_value_head_dim": d.ValueSize} {
		check(v >= 1 && v <= 1<<14, key, "= %d: must be 1 to %d", v, 1<<14)
	}
	check(d.KeyHeads < 1 || d.ValueHeads%d.KeyHeads == 0, "linear_num_value_heads",
		"= %d is no multiple of linear_num_key_heads %d", d.ValueHeads, d.KeyHeads)
	check(d.Filter >= 1 && d.Filter <= maxFilter, "linear_conv_kernel_dim", "= %d: must be 1 to %d",
		d.Filter, maxFilter)
}
