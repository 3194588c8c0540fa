package bamba

import (
	"slices"

	"github.com/tierlora/tierlora/model"
)

// FalconH1 describes config.json of Falcon-H1.
var FalconH1 = model.Dialect{Architecture: "FalconH1ForCausalLM", KVHeadsOptional: true, SiLU: true, Defaults: defaults,
	Read: func(c *model.Config, k *model.Keys) {
		readBiases(c, k)
		model.ReadMambaOfWidth(c, k, "mamba_d_ssm", 1024)
		out := false
		if k.Bool("projectors_bias", &out); out != c.StateSpace.Bias {
			k.Fail("projectors_bias", "= %v, and mamba_proj_bias is %v: only equal values are supported", out,
				c.StateSpace.Bias)
		}
		before := true
		k.Bool("mamba_norm_before_gate", &before)
		if k.Bool("mamba_rms_norm", &c.StateSpace.Norm); c.StateSpace.Norm && before {
			k.Fail("mamba_norm_before_gate", "= true: with mamba_rms_norm only a norm behind the gate is supported")
		}
		readMultipliers(c, k)
		k.Drop("mlp_expansion_factor") // of the code that made intermediate_size
	}, Fixed: map[string]model.Fixed{
		"attn_layer_indices": {Value: nil, Why: "every layer of falcon_h1 has attention"},
		"mamba_use_mlp":      {Value: true, Why: "every layer of falcon_h1 has an MLP"},
	}}

// readMultipliers reads Falcon-H1's factors.
func readMultipliers(c *model.Config, k *model.Keys) {
	m := model.NoMultipliers()
	c.Multipliers = m
	for _, one := range []struct {
		key string
		v   *float64
	}{{"embedding_multiplier", &m.Embedding}, {"lm_head_multiplier", &m.Head}, {"key_multiplier", &m.Key},
		{"attention_in_multiplier", &m.AttentionIn}, {"attention_out_multiplier", &m.AttentionOut},
		{"ssm_in_multiplier", &m.ScanIn}, {"ssm_out_multiplier", &m.ScanOut}} {
		k.Float(one.key, one.v)
		checkMultiplier(k, one.key, *one.v)
	}
	for _, several := range []struct {
		key  string
		list *[]float64
	}{{"mlp_multipliers", &m.MLP}, {"ssm_multipliers", &m.Scan}} {
		want := len(*several.list)
		if given := k.Floats(several.key); given != nil {
			*several.list = given
		}
		if len(*several.list) != want {
			k.Fail(several.key, "has %d numbers: must be %d", len(*several.list), want)
			*several.list = slices.Repeat([]float64{1}, want)
		}
		for _, v := range *several.list {
			checkMultiplier(k, several.key, v)
		}
	}
}

func checkMultiplier(k *model.Keys, key string, v float64) {
	if !(v >= 1e-6 && v <= 1e6) {
		k.Fail(key, "= %g: must be 1e-6 to 1e6", v)
	}
}
