package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model/families"
)

// TestKeysOfAnotherFamily: a key that changes the model in one family is refused, by its name, in every family that has
// no such thing: a file whose model_type was edited, or a new release of a known architecture.
func TestKeysOfAnotherFamily(t *testing.T) {
	for key, c := range map[string]struct {
		value string
		of    []string // families that know it
	}{
		"embedding_multiplier":    {"12.0", []string{"falcon_h1", "granite", "granitemoehybrid"}},
		"no_rope_layers":          {"[0,1,1,1]", []string{"smollm3"}},
		"final_logit_softcapping": {"30.0", []string{"gemma2", "gemma3_text", "gemma4_text", "gemma4_unified_text"}},
		"query_pre_attn_scalar":   {"224", []string{"gemma2", "gemma3_text"}},
		"full_attn_mod":           {"2", nil},
		"interpolate_factor":      {"2", nil},
		"num_local_experts": {"8", []string{"afmoe", "deepseek_v3", "ernie4_5_moe", "glm4_moe", "glm4_moe_lite",
			"gpt_oss", "granitemoehybrid",
			"lfm2_moe", "minimax_m2", "mixtral", "nemotron_h", "qwen2_moe",
			"qwen3_5_moe_text", "qwen3_moe", "qwen3_next"}},
		"rotary_pct":           {"0.25", nil},
		"parallel_attn":        {"true", nil},
		"mup_width_multiplier": {"8.0", nil},
		"partial_rotary_factor": {"0.5", []string{"bamba", "glm", "glm4", "glm4_moe", "minimax_m2", "phi3",
			"qwen3_5_moe_text",
			"qwen3_5_text", "qwen3_next"}},
	} {
		for family := range families.Table {
			if slices.Contains(c.of, family) {
				continue
			}
			_, err := parse(family, `"`+key+`":`+c.value)
			if err == nil || !strings.Contains(err.Error(), key+" = "+c.value+": ") {
				t.Errorf("%s with %s: error %v", family, key, err)
			}
		}
	}
}

// TestBadSizesInEveryFamily: sizes that fit no model are refused in the same words whatever the family is.
func TestBadSizesInEveryFamily(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"num_key_value_heads":2`, `"num_key_value_heads":3`,
			"num_key_value_heads = 3 does not divide num_attention_heads 4"},
		{`"num_key_value_heads":2`, `"num_key_value_heads":8`,
			"num_key_value_heads = 8 does not divide num_attention_heads 4"},
		{`"hidden_size":64`, `"hidden_size":64,"head_dim":15`,
			"head_dim = 15: rotary embedding needs an even head size"},
		{`"vocab_size":100`, `"vocab_size":0`, "vocab_size = 0: must be 1 to 16777216"},
	} {
		for family := range families.Table {
			given := strings.Replace(sizes, c.from, c.to, 1)
			if families.Table[family].Dialect.Text != nil {
				given = `"text_config":{` + given + `}`
			}
			_, err := families.ParseConfig(fmt.Appendf(nil, `{"model_type":%q,%s}`, family, given))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s with %s: error %v, expected %s", family, c.to, err, c.want)
			}
		}
	}
}
