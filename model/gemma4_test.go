package model_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
)

const rope4 = `"rope_parameters":{"full_attention":{"partial_rotary_factor":0.25,"rope_theta":1000000.0,"rope_type":"proportional"},"sliding_attention":{"rope_theta":10000.0,"rope_type":"default"}}`

// TestGemma4Config: sizes as transformers' classes spell them for the 31B and the E2B, in the spelling of 5.17 and in
// the one before.
func TestGemma4Config(t *testing.T) {
	dense :=
		`{"model_type":"gemma4","architectures":["Gemma4ForConditionalGeneration"],"image_token_id":258880,"video_token_id":258884,"eoa_token_index":258883,"audio_config":null,"vision_config":{"a":1},
		"tie_word_embeddings":true,"text_config":{"model_type":"gemma4_text","hidden_size":5376,"intermediate_size":21504,"num_hidden_layers":60,"num_attention_heads":32,
		"num_key_value_heads":16,"head_dim":256,"attention_k_eq_v":true,"sliding_window":1024,"final_logit_softcapping":30.0,"hidden_size_per_layer_input":0,
		"use_bidirectional_attention":"vision","num_kv_shared_layers":0,"enable_moe_block":false,` + rope4 + `,`
	layers := []string{}
	for i := 5; i < 60; i += 6 {
		layers = append(layers, `"`+string([]byte{byte('0' + i/10), byte('0' + i%10)})+
			`":{"head_dim":512,"num_key_value_heads":4}`)
	}
	padded := `"per_layer_config":{` + strings.Join(layers, ",") + `}}}` // as transformers 5.17 writes it
	var both []model.Config
	for _, more := range []string{`"global_head_dim":512,"num_global_key_value_heads":4}}`, padded,
		strings.Replace(padded, `"05"`, `"5"`, 1)} {
		c, err := families.ParseConfig([]byte(dense + more))
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, c)
	}
	c := both[0]
	if !reflect.DeepEqual(c, both[1]) || !reflect.DeepEqual(c, both[2]) {
		t.Errorf("the spellings differ: %+v, %+v, %+v", c, both[1], both[2])
	}
	for _, wrong := range []string{`"+5"`, `"60"`, `"05":{},"5"`, `""`} {
		if _, err := families.ParseConfig([]byte(dense + strings.Replace(padded, `"05"`, wrong, 1))); err == nil ||
			!strings.Contains(err.Error(), "per_layer_config names layer") {
			t.Errorf("a layer %s: %v", wrong, err)
		}
	}
	size, kv := c.Heads(5)
	local, localKV := c.Heads(0)
	if got, want := []int{size, kv, local, localKV, c.Window(0), c.Window(59), c.KVLayer(59)}, []int{512, 4, 256, 16,
		1024, 0, 59}; !slices.Equal(got, want) || c.LogitCap != 30 {
		t.Errorf("%v, cap %g, want %v", got, c.LogitCap, want)
	}
	f, scale, err := c.FullRope().InvFreq(100)
	if err != nil || scale != 1 || len(f) != 256 || f[63] == 0 || f[64] != 0 ||
		math.Abs(f[1]-math.Pow(1e6, -2./512)) > 1e-15 {
		t.Errorf("frequencies %v, %v", f, err)
	}
	small, err := parse("gemma4_text",
		`"num_kv_shared_layers":2,"layer_types":["sliding_attention","full_attention","sliding_attention","sliding_attention"]`)
	if err != nil || small.Window(3) != 0 || small.Window(2) != 512 || small.KVLayer(2) != 0 || small.KVLayer(3) != 1 ||
		small.Gemma4.PerLayerInput != 256 ||
		small.RopeScaling.Proportion != 0.25 || small.RopeTheta != 1e6 || small.LocalRopeTheta != 1e4 {
		t.Errorf("%+v, %v", small, err)
	}
	last, err := parse("gemma4_text",
		`"num_kv_shared_layers":1,"layer_types":["full_attention","full_attention","sliding_attention","full_attention"]`)
	if err != nil || last.KVLayer(3) != 1 {
		t.Errorf("layer 3 has keys of %d, %v, want those of the last full layer before it", last.KVLayer(3), err)
	}
	// the 26B-A4B's
	mixture, err := parse("gemma4_text",
		`"enable_moe_block":true,"num_experts":128,"top_k_experts":8,"moe_intermediate_size":704,"hidden_size_per_layer_input":0`)
	if err != nil || mixture.Experts != 128 || mixture.ExpertsPerToken != 8 || mixture.ExpertSize != 704 {
		t.Errorf("%+v, %v", mixture, err)
	}
	// as transformers
	if plain, err := parse("gemma4_text", `"enable_moe_block":false,"num_experts":128,"top_k_experts":8`); err != nil ||
		plain.Experts != 0 {
		t.Errorf("%+v, %v", plain, err)
	}
	unified,
		err := families.ParseConfig(
		[]byte(`{"model_type":"gemma4_unified","architectures":["Gemma4UnifiedForConditionalGeneration"],"eoa_token_index":258883,"vision_config":{"a":1},"audio_config":{},
		"tie_word_embeddings":true,"text_config":{"model_type":"gemma4_unified_text","hidden_size":3840,"intermediate_size":15360,"num_hidden_layers":48,"num_attention_heads":16,"num_key_value_heads":8,
		"num_global_key_value_heads":1,"attention_k_eq_v":true,"final_logit_softcapping":30.0,` + rope4 + `}}`)) // the 12B's sizes
	if err != nil || unified.Window(0) != 1024 || unified.Window(5) != 0 || unified.Gemma4.PerLayerInput != 0 ||
		unified.Gemma4.PerLayerVocab != 0 || unified.MaxPositions != 262144 {
		t.Errorf("%+v, %v", unified, err)
	}
	const moe = `"enable_moe_block":true,"num_experts":4,"top_k_experts":2,"moe_intermediate_size":8`
	if _, err := parse("gemma4_unified_text", moe); err == nil || !strings.Contains(err.Error(),
		"enable_moe_block = true: gemma4_unified has no experts") {
		t.Errorf("experts of gemma4_unified: %v", err)
	}
	stored := families.Unused(small)
	if len(stored) != 6 || !slices.Contains(stored, "model.layers.2.self_attn.k_proj.weight") ||
		slices.Contains(stored, "model.layers.1.self_attn.k_proj.weight") {
		t.Errorf("left out %v", stored)
	}
}

func TestGemma4Refuses(t *testing.T) {
	types := `"layer_types":["sliding_attention","sliding_attention","full_attention","full_attention"],`
	for more, want := range map[string]string{
		`"enable_moe_block":true,"num_experts":128,"moe_intermediate_size":704`:                 "top_k_experts is missing: enable_moe_block is true",
		`"enable_moe_block":true,"num_experts":0,"top_k_experts":1,"moe_intermediate_size":704`: "num_experts = 0: must be 1 to 1024",
		`"enable_moe_block":true,"num_experts":4,"top_k_experts":5,"moe_intermediate_size":704`: "top_k_experts = 5: must be 1 to 64, and at most the 4 experts",
		`"enable_moe_block":true,"num_experts":4,"top_k_experts":2,"moe_intermediate_size":0`:   "moe_intermediate_size = 0: must be 1 to",
		`"use_bidirectional_attention":"all"`:                                                   `use_bidirectional_attention = "all": attention to later tokens`,
		`"num_kv_shared_layers":4`:                                                              "num_kv_shared_layers = 4: must be 0 to 3",
		types + `"num_kv_shared_layers":2`:                                                      "num_kv_shared_layers = 2: no layer before them is a layer of full_attention, as layer 2 is",
		`"global_head_dim":15`:                                                                  "global_head_dim = 15: must be even",
		`"attention_k_eq_v":true,"num_global_key_value_heads":3`:                                "num_global_key_value_heads = 3 does not divide num_attention_heads 4",
		`"vocab_size_per_layer_input":99`:                                                       "vocab_size_per_layer_input = 99: must be vocab_size 100 or more",
		`"hidden_size_per_layer_input":-1`:                                                      "hidden_size_per_layer_input = -1: must be 0 to",
		`"per_layer_config":{"0":{"head_dim":8}}`:                                               "per_layer_config has other heads for layer 0, which has a window",
		`"per_layer_config":{"9":{"head_dim":8}}`:                                               `per_layer_config names layer "9", of 4`,
		`"per_layer_config":{"3":{"window":8}}`:                                                 "per_layer_config.3 has window: only head_dim and num_key_value_heads differ",
		types + `"per_layer_config":{"3":{"head_dim":8}}`:                                       "per_layer_config has heads of 256 and of 8",
		`"rope_scaling":{"rope_type":"default"}`:                                                "rope_scaling is not read by gemma4",
		`"rope_parameters":{"rope_type":"default"}`:                                             "rope_parameters.sliding_attention is missing",
		strings.Replace(rope4, "0.25", "0.001",
			1): "rope_parameters.partial_rotary_factor = 0.001: rotates nothing of a head of 512",
		strings.Replace(rope4, "0.25", "1.5", 1): "rope_parameters.partial_rotary_factor = 1.5: " +
			"must be above 0 and at most 1",
		strings.Replace(rope4, `"proportional"`, `"yarn"`, 1): `"yarn" is not supported (supported: default, ` +
			`proportional)`,
		strings.Replace(rope4, `"default"}`, `"default","zz":1}`, 1): "zz = 1",
		`"altup_num_inputs":4`: "altup_num_inputs = 4: unknown key",
	} {
		if _, err := parse("gemma4_text", more); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", more, err, want)
		}
	}
	if _, err := parse("llama", `"rope_parameters":{"rope_type":"proportional"}`); err == nil ||
		!strings.Contains(err.Error(), `"proportional" is not supported`) {
		t.Errorf("llama: %v", err)
	}
}
