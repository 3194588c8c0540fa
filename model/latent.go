package model

import "math"

// Latent holds the sizes of multi-head latent attention: keys and values of all heads come from a few numbers of a
// token (DeepSeek-AI, "DeepSeek-V2", 2024).
type Latent struct {
	QueryRank int // width of what queries are computed from; 0 = the hidden state itself
	KVRank    int // width of what keys and values are computed from
	Own       int // columns of a head's key that are its own and not rotated
	Rotated   int // columns of a key that all heads share, rotated; HeadDim is Own + Rotated
	Value     int // columns of a head's value, at most HeadDim
}

// ReadLatent reads the keys of multi-head latent attention. sizes are the values of absent keys.
func (c *Config) ReadLatent(k *Keys, sizes Latent) {
	l := sizes
	if k.null("q_lora_rank") {
		l.QueryRank = 0
	}
	k.Int("q_lora_rank", &l.QueryRank)
	k.Int("kv_lora_rank", &l.KVRank)
	k.Int("qk_nope_head_dim", &l.Own)
	k.Int("qk_rope_head_dim", &l.Rotated)
	k.Int("v_head_dim", &l.Value)
	head := l.Own + l.Rotated
	whole := head
	if k.Int("qk_head_dim", &whole); whole != head {
		k.Fail("qk_head_dim", "= %d contradicts qk_nope_head_dim %d and qk_rope_head_dim %d", whole, l.Own, l.Rotated)
	}
	switch { // transformers writes the rotated size as head_dim
	case !k.given["head_dim"] || c.HeadDim == l.Rotated || c.HeadDim == head:
	case c.HeadDim%2 != 0:
		k.Fail("head_dim", "= %d: rotary embedding needs an even head size", c.HeadDim)
	default:
		k.Fail("head_dim", "= %d contradicts qk_nope_head_dim %d and qk_rope_head_dim %d", c.HeadDim, l.Own, l.Rotated)
	}
	c.Latent, c.HeadDim = l, head
	if n := c.NumKVHeads; n != c.NumHeads && n > 0 && c.NumHeads%n == 0 { // else it is refused elsewhere
		k.Fail("num_key_value_heads", "= %d: latent attention gives each of the %d heads keys of its own", c.NumKVHeads,
			c.NumHeads)
	}
	c.OBias = c.QKVBias
	if r := c.RopeScaling; r.MScaleAllDim != 0 && r.Factor > 1 && head > 0 {
		by := 0.1*r.MScaleAllDim*math.Log(r.Factor) + 1
		c.AttentionScale = by * by / math.Sqrt(float64(head))
	}
}

func (c Config) latentProblems(check func(ok bool, key, format string, args ...any)) {
	if c.Latent == (Latent{}) {
		return
	}
	for key, size := range map[string]int{"kv_lora_rank": c.Latent.KVRank, "qk_nope_head_dim": c.Latent.Own,
		"qk_rope_head_dim": c.Latent.Rotated, "v_head_dim": c.Latent.Value} {
		check(size >= 1 && size <= 1<<14, key, "= %d: must be 1 to %d", size, 1<<14)
	}
	check(c.Latent.QueryRank >= 0 && c.Latent.QueryRank <= 1<<20, "q_lora_rank", "= %d: must be 1 to %d, or null",
		c.Latent.QueryRank, 1<<20)
	check(c.Latent.Rotated%2 == 0, "qk_rope_head_dim", "= %d: rotary embedding needs an even size", c.Latent.Rotated)
	check(c.Latent.Value <= c.HeadDim, "v_head_dim",
		"= %d: values wider than keys (qk_nope_head_dim + qk_rope_head_dim = %d) are not supported", c.Latent.Value,
		c.HeadDim)
}
