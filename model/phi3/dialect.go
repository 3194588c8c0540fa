package phi3

import "github.com/tierlora/tierlora/model"

const (
	noBias   = "phi3 has no biases"
	sampling = "phi3 as transformers computes it has no such change"
)

// Dialect describes config.json of a phi3 model. Microsoft's folders name code of their own (auto_map), which equals
// transformers' phi3, and set its keys to the values given here.
var Dialect = model.Dialect{
	Architecture: "Phi3ForCausalLM", KVHeadsOptional: true, PartialRotary: true, SiLU: true,
	Defaults: func(c *model.Config) {
		c.RMSNormEps = 1e-5
	},
	// The first releases used the names su and, for a time, yarn for longrope.
	RopeTypes: map[string]string{"default": "default", "longrope": "longrope", "su": "longrope", "yarn": "longrope"},
	Read:      read,
	Fixed: map[string]model.Fixed{
		"attention_bias": {Value: false, Why: noBias}, "mlp_bias": {Value: false, Why: noBias},
		"lm_head_bias":  {Value: false, Why: noBias},
		"full_attn_mod": {Value: 1.0, Why: sampling}, "interpolate_factor": {Value: 1.0, Why: sampling},
	},
}

func read(c *model.Config, k *model.Keys) {
	if k.Int("sliding_window", &c.SlidingWindow) && c.SlidingWindow == 0 {
		k.Fail("sliding_window", "= 0: must be 1 or more, or null")
	}
	original := 4096
	top := k.Int("original_max_position_embeddings", &original)
	if s := &c.RopeScaling; s.Type == "longrope" {
		switch inside := s.OriginalMaxPositions; {
		case inside == 0 || inside == original:
		case top:
			k.Fail("original_max_position_embeddings", "= %d contradicts the %d of the rotary scaling",
				original, inside)
		default: // transformers reads only the one beside the rotary scaling
			k.Fail("original_max_position_embeddings", "is missing, and then %d in transformers, not the %d of the "+
				"rotary scaling: write it beside the rotary scaling", original, inside)
		}
		if s.OriginalMaxPositions == 0 {
			s.OriginalMaxPositions = original
		}
	}
	k.OwnCode("Phi3ForCausalLM")
}
