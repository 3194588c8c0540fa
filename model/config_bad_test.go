package model_test

import (
	"math"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
)

func TestConfigRefuses(t *testing.T) {
	for _, c := range []struct{ family, more, want string }{
		{"llama", `"vocab_size":1`, `duplicate key "vocab_size"`},
		{"gpt2", ``, `model_type = "gpt2" is not supported (supported: afmoe, apertus, arcee, bamba, cohere, cohere2, cwm, deepseek_v2, deepseek_v3, ernie4_5, ernie4_5_moe, exaone4, falcon_h1, gemma, ` +
			`gemma2, gemma3, gemma3_text, gemma4, gemma4_text, gemma4_unified, gemma4_unified_text, glm, glm4, ` +
			`glm4_moe, glm4_moe_lite, gpt_oss, granite, granitemoehybrid, hunyuan_v1_dense, idefics3, lfm2, lfm2_moe, llama, minimax_m2, ministral, ministral3, ` +
			`mistral, mistral3, mixtral, nemotron_h, olmo2, olmo3, phi3, qwen2, qwen2_moe, qwen3, qwen3_5, qwen3_5_moe, ` +
			`qwen3_5_moe_text, qwen3_5_text, qwen3_moe, qwen3_next, qwen3_vl, seed_oss, smollm3, smolvlm)`},
		{"llama", `"architectures":["LlamaForQuestionAnswering"]`,
			`architectures = ["LlamaForQuestionAnswering"]: a llama checkpoint must be a LlamaForCausalLM`},
		{"llama", `"architectures":"LlamaForCausalLM"`,
			`architectures = "LlamaForCausalLM": must be a list of strings`},
		{"llama", `"hidden_act":"relu"`, `hidden_act = "relu": supported are silu, gelu_pytorch_tanh and gelu`},
		{"llama", `"partial_rotary_factor":0.5`,
			`partial_rotary_factor = 0.5: rotation of a part of the head is not supported`},
		{"llama", `"rope_interleaved":true`, `rope_interleaved = true: only the rotate-half layout is supported`},
		{"llama", `"quantization_config":{"quant_method":"gptq","bits":3}`,
			`quantization_config.bits = 3: GPTQ weights of 2, 4 and 8 bits are read; use the model that they were made from`},
		{"llama", `"quantization_config":{"quant_method":"aqlm","bits":4}`,
			`quantization_config = {"quant_method":"aqlm","bits":4}: weights that AQLM has quantised are not ` +
				`supported; use the model that they were made from`},
		{"llama", `"quantization_config":{"quant_method":"hqq"}`,
			`weights that HQQ has quantised are not supported; use the model`},
		{"llama", `"quantization_config":{"quant_method":"compressed-tensors","format":"sparse-24-bitmask"}`,
			`quantization_config.format = "sparse-24-bitmask": compressed-tensors' dense, float-quantized`},
		{"llama", `"compression_config":{"format":"pack-quantized"}`,
			`weights that compressed-tensors (llm-compressor) has quantised are not`},
		{"qwen2", `"quantization_config":{"quant_method":"fp8","weight_block_size":[128,0]}`,
			`quantization_config.weight_block_size = [128 0]: it is a list of two positive numbers, rows and columns`},
		{"llama", `"quantization_config":{"quant_method":"mxfp4"}`,
			`MXFP4 is read of gpt_oss' experts alone; use the model`},
		{"llama", `"quantization_config":{"quant_method":"zip4"}`,
			`quantization_config = {"quant_method":"zip4"}: quant_method "zip4" is not known`},
		{"llama", `"quantization_config":{"bits":4}`,
			`quantization_config.quant_method is missing; bitsandbytes is the method whose weights are read`},
		{"llama", `"quantization_config":[4]`, `quantization_config = [4]: not a JSON object`},
		{"llama", `"quantization_config":{"quant_method":"bitsandbytes"}`,
			`quantization_config.load_in_4bit and load_in_8bit are both false: one must be true`},
		{"llama", `"quantization_config":{"load_in_4bit":true,"bnb_4bit_quant_type":"nf3"}`,
			`quantization_config.bnb_4bit_quant_type = "nf3": supported are nf4 and fp4`},
		{"llama", `"quantization_config":{"load_in_4bit":true,"bnb_4bit_quant_storage":"int4"}`,
			`quantization_config.bnb_4bit_quant_storage = "int4": supported are uint8`},
		{"llama", `"quantization_config":{"load_in_4bit":true,"group_size":32}`,
			`quantization_config.group_size = 32: unknown key`},
		{"llama", `"quantization_config":{"load_in_8bit":true,"llm_int8_has_fp16_weight":true}`,
			`quantization_config.llm_int8_has_fp16_weight = true: weights that`},
		{"llama", `"attention_dropout":0.1`, `attention_dropout = 0.1: training here has no dropout in the base model`},
		{"mistral", `"num_local_experts":8`,
			`num_local_experts = 8: this part of a mixture of experts is not supported in this family`},
		{"qwen2", `"vision_config":{"depth":32}`, `vision_config = {"depth":32}: only text models are supported`},
		{"llama", `"auto_map":{"AutoModel":"x.Y"}`,
			`auto_map = {"AutoModel":"x.Y"}: models that bring their own code are not supported`},
		{"llama", `"final_logit_softcapping":30.0`,
			`final_logit_softcapping = 30.0: this change to the attention or the logits is not supported`},
		{"llama", `"embedding_multiplier":12.0`,
			`embedding_multiplier = 12.0: unknown key; tierlora does not know whether it changes the model`},
		{"llama", `"Hidden_Size":64`, `Hidden_Size = 64: unknown key`},
		{"llama", `"x":"` + strings.Repeat("y", 200) + `"`, `x = "` + strings.Repeat("y", 79) + `…: unknown key`},
		{"llama", `"rms_norm_eps":"1e-5"`, `rms_norm_eps = "1e-5": must be a number`},
		{"llama", `"rms_norm_eps":0`, `rms_norm_eps = 0: must be above 0 and below 1`},
		{"llama", `"tie_word_embeddings":1`, `tie_word_embeddings = 1: must be true or false`},
		{"llama", `"head_dim":16.5`, `head_dim = 16.5: must be a whole number`},
		{"llama", `"head_dim":15`, `head_dim = 15: rotary embedding needs an even head size`},
		{"llama", `"head_dim":-2`, `head_dim = -2: must be 1 to 16384`},
		{"llama", `"eos_token_id":"x"`, `eos_token_id = "x": must be a token id or a list of them`},
		{"llama", `"dtype":"int8"`, `dtype = "int8": supported are float64, float32, float16 and bfloat16`},
		{"llama", `"sliding_window":32`, `sliding_window = 32: llama has no sliding window`},
		{"llama", `"layer_types":["full_attention","sliding_attention"]`,
			`layer_types[1] = "sliding_attention": llama has only full_attention`},
		{"mistral", `"attention_bias":true`, `attention_bias = true: mistral has no biases`},
		{"mistral", `"sliding_window":-1`, `sliding_window = -1: must be 1 to 1073741824, or null`},
		{"mistral", `"sliding_window":9,"layer_types":["full_attention"]`,
			`layer_types[0] = "full_attention": mistral's layers are alike`},
		{"qwen2", `"attention_bias":false`, `attention_bias = false: qwen2 always has biases on q, k and v`},
		{"qwen2", `"layer_types":["sliding_attention","full_attention","full_attention","full_attention"]`,
			`layer_types[0] = "sliding_attention" but no window is in use`},
		{"qwen2", `"use_sliding_window":true,"layer_types":["sliding_attention"]`,
			`layer_types names 1 layers, num_hidden_layers is 4`},
		{"qwen2", `"use_sliding_window":true,"layer_types":["sliding_attention","a","b","c"]`,
			`layer_types[1] = "a": supported are`},
		{"llama", `"rope_theta":1`, `rope_theta = 1: must be above 1`},
		{"llama", `"rope_scaling":[1]`, `rope_scaling = [1]: not a JSON object`},
		{"llama", `"rope_scaling":{}`,
			`rope_scaling.rope_type is missing (supported: default, dynamic, linear, llama3, longrope, yarn)`},
		{"llama", `"rope_scaling":{"type":"su","short_factor":[1]}`, `rope_scaling.type = "su" is not supported`},
		{"llama", `"rope_scaling":{"rope_type":"longrope","short_factor":[1,1,1,1,1,1,1,1]}`,
			`rope_scaling.long_factor is missing; type "longrope" needs it`},
		{"llama", `"rope_scaling":{"type":"linear","rope_type":"yarn","factor":2}`,
			`rope_scaling.type = "linear" contradicts rope_type = "yarn"`},
		{"llama", `"rope_scaling":{"type":"linear"}`, `rope_scaling.factor is missing; type "linear" needs it`},
		{"llama", `"rope_scaling":{"type":"linear","factor":0.5}`, `rope_scaling.factor = 0.5: must be at least 1`},
		{"llama", `"rope_parameters":{"rope_type":"linear","factor":0.5}`,
			`rope_parameters.factor = 0.5: must be at least 1`},
		{"llama", `"rope_scaling":{"type":"linear","factor":2,"low_freq_factor":1}`,
			`rope_scaling.low_freq_factor = 1: rope type "linear" has no such key`},
		{"llama", `"rope_scaling":{"type":"yarn","factor":2,"beta_fast":1,"beta_slow":2}`,
			`rope_scaling.beta_fast = 1: must not be below beta_slow 2`},
		{"llama", `"rope_scaling":{"type":"yarn","factor":2,"truncate":1}`,
			`rope_scaling.truncate = 1: must be true or false`},
		{"llama",
			`"rope_scaling":{"type":"llama3","factor":2,"low_freq_factor":4,"high_freq_factor":1,"original_max_position_embeddings":8}`, `rope_scaling.high_freq_factor = 1: must be above low_freq_factor 4`},
		{"llama", `"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.25}`,
			`rope_parameters.partial_rotary_factor = 0.25: rope type "default" has no such key`},
		{"llama", `"rope_parameters":{"full_attention":{"rope_type":"default"}}`,
			`rope_parameters.full_attention = {"rope_type":"default"}: rope type "default" has no such key`},
		{"llama", `"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"default"}`,
			`rope_parameters and rope_scaling contradict each other`},
		{"llama", `"rope_theta":10000,"rope_parameters":{"rope_theta":20000}`,
			`rope_parameters.rope_theta = 20000 contradicts rope_theta = 10000`},
		{"arcee", `"hidden_act":"silu"`, `hidden_act = "silu": only relu2 is supported`},
		{"arcee", `"sliding_window":8`, `sliding_window = 8: llama has no sliding window`},
		{"cohere", `"use_qk_norm":true`, `use_qk_norm = true: LayerNorm of queries and keys is not supported`},
		{"cohere", `"layer_norm_eps":2`, `layer_norm_eps = 2: must be above 0 and below 1`},
		{"cohere", `"logit_scale":0`, `logit_scale = 0: must be 1e-6 to 1e6`},
		{"cohere", `"use_parallel_block":false`, `use_parallel_block = false: attention and MLP of cohere read one norm`},
		{"cohere", `"sliding_window":8`, `sliding_window = 8: unknown key`},
		{"cohere2", `"sliding_window":null`,
			`sliding_window must be a number of tokens, 1 or more; layer_types says which layers have it`},
		{"cohere2", `"sliding_window_pattern":0`, `sliding_window_pattern = 0: must be 1 or more`},
		{"cohere2", `"head_dim":32`, `head_dim = 32: cohere2's heads are together as wide as hidden_size`},
		{"glm", `"mlp_bias":true`, `mlp_bias = true: glm has no biases in its MLP`},
		{"glm", `"partial_rotary_factor":1.5`, `partial_rotary_factor = 1.5: must be above 0 and at most 1`},
		{"falcon_h1", `"mamba_d_ssm":96`, `mamba_n_heads = 128 does not divide mamba_d_ssm 96`},
		{"falcon_h1", `"mlp_multipliers":[1]`, `mlp_multipliers has 1 numbers: must be 2`},
		{"falcon_h1", `"key_multiplier":0`, `key_multiplier = 0: must be 1e-6 to 1e6`},
		{"falcon_h1", `"mamba_rms_norm":true`,
			`mamba_norm_before_gate = true: with mamba_rms_norm only a norm behind the gate is supported`},
		{"bamba", `"attn_layer_indices":[2,4]`, `attn_layer_indices[1] = 4: must be 0 to 3`},
		{"bamba", `"attn_layer_indices":"2"`, `attn_layer_indices = "2": must be a list of whole numbers`},
		{"bamba", `"z_loss_coefficient":0.1`, `z_loss_coefficient = 0.1: a loss of the logits' sizes is not supported`},
		{"bamba", `"partial_rotary_factor":1.0`,
			`partial_rotary_factor = 1: transformers reads it in rope_parameters alone`},
		{"bamba", `"mamba_n_groups":3`, `mamba_n_groups = 3 does not divide mamba_n_heads 128`},
		{"falcon_h1", `"attn_layer_indices":[1]`, `attn_layer_indices = [1]: every layer of falcon_h1 has attention`},
		{"falcon_h1", `"projectors_bias":true`,
			`projectors_bias = true, and mamba_proj_bias is false: only equal values are supported`},
		{"nemotron_h", `"hybrid_override_pattern":"M*X-"`,
			`hybrid_override_pattern[2] = 'X': supported are M, *, - and E`},
		{"nemotron_h", `"hybrid_override_pattern":"M*E"`, `layer_types names 3 layers, num_hidden_layers is 4`},
		{"nemotron_h", `"layers_block_type":["mamba","attention","mlp","sliding"]`,
			`layers_block_type[3] = "sliding": supported are full_attention, linear_attention, mlp and moe`},
		{"nemotron_h", `"mlp_hidden_act":"silu"`, `mlp_hidden_act = "silu": only relu2 is supported`},
		{"nemotron_h", `"n_groups":3`, `n_groups = 3 does not divide mamba_num_heads 128`},
		{"nemotron_h", `"moe_latent_size":0`, `moe_latent_size = 0: must be 1 to 1048576`},
		{"nemotron_h", `"time_step_min":-1`, `time_step_min = -1: must be 0 or more`},
		{"nemotron_h", `"tie_word_embeddings":true`,
			`tie_word_embeddings = true: nemotron_h has a head apart from the embeddings`},
	} {
		_, err := parse(c.family, c.more)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s:\nerror %v\nexpected %s", c.family, c.more, err, c.want)
		} else if strings.Contains(err.Error(), "problems:") {
			t.Errorf("%s %s: one mistake gives several problems: %v", c.family, c.more, err)
		}
	}
}

func TestConfigSizes(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"vocab_size":100`, `"vocab_size":0`, "vocab_size = 0: must be 1 to 16777216"},
		{`"vocab_size":100,`, ``, "vocab_size is missing"},
		{`"hidden_size":64`, `"hidden_size":null`, "hidden_size is missing"},
		{`"hidden_size":64`, `"hidden_size":65`,
			"head_dim is missing and hidden_size 65 is not a multiple of num_attention_heads 4"},
		{`"hidden_size":64`, `"hidden_size":9223372036854775807`,
			"hidden_size = 9223372036854775807: must be 1 to 1048576"},
		{`"hidden_size":64`, `"hidden_size":1e400`, "hidden_size = 1e400: must be a whole number"},
		{`"num_attention_heads":4`, `"num_attention_heads":-4`, "num_attention_heads = -4: must be 1 to 16384"},
		{`"num_attention_heads":4,`, ``, "num_attention_heads is missing"},
		{`"num_key_value_heads":2`, `"num_key_value_heads":3`,
			"num_key_value_heads = 3 does not divide num_attention_heads 4"},
		{`"num_key_value_heads":2`, `"num_key_value_heads":0`, "num_key_value_heads = 0: must be 1 to 16384"},
		{`"num_hidden_layers":4`, `"num_hidden_layers":1000000000000`,
			"num_hidden_layers = 1000000000000: must be 1 to 4096"},
		{`"max_position_embeddings":512`, `"max_position_embeddings":0`, "max_position_embeddings = 0: must be 1"},
	} {
		text := `{"model_type":"llama",` + strings.Replace(sizes, c.from, c.to, 1) + `}`
		if _, err := families.ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected %q", text, err, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{``, "not JSON"}, {`[]`, "not a JSON object"}, {`null`, "not a JSON object"}, {`{} {}`, "not JSON"},
		{`{}`, `model_type is missing and architectures [] names no supported family`},
		{`{"model_type":7}`, `model_type = 7: must be a string`},
		{`{"model_type":"mistral","sliding_window":null}`, "num_key_value_heads is missing"},
	} {
		if _, err := families.ParseConfig([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected %q", c.text, err, c.want)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := families.ParseConfig(
		[]byte(`{"model_type":"llama","hidden_size":64,"intermediate_size":"big","num_hidden_layers":2,"max_position_embeddings":9,"eos_token_id":3,
		"hidden_act":"relu","num_experts":4,"surprise":true,"rope_scaling":{"type":"linear","extra":1}}`))
	const want = `8 problems:
  hidden_act = "relu": supported are silu, gelu_pytorch_tanh and gelu
  intermediate_size = "big": must be a whole number
  num_attention_heads is missing
  num_experts = 4: this part of a mixture of experts is not supported in this family
  rope_scaling.extra = 1: rope type "linear" has no such key
  rope_scaling.factor is missing; type "linear" needs it
  surprise = true: unknown key; tierlora does not know whether it changes the model
  vocab_size is missing`
	if err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nexpected:\n%s", err, want)
	}
}

func TestValidate(t *testing.T) {
	if err := tinyLlama.Validate(); err != nil {
		t.Error(err)
	}
	bad := tinyLlama
	bad.NumKVHeads, bad.HeadDim, bad.NumLayers = 5, 63, 0
	if err := bad.Validate(); err == nil || !strings.HasPrefix(err.Error(), "3 problems:\n  head_dim = 63") {
		t.Errorf("three mistakes: %v", err)
	}
	if err := (model.Config{}).Validate(); err == nil || !strings.Contains(err.Error(), "problems") {
		t.Errorf("a zero Config: %v", err)
	}
}

// FuzzParseConfig: nothing panics, and what is accepted is valid and gives
// frequencies.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"model_type":"qwen2",` + sizes + `,"use_sliding_window":true,"max_window_layers":2}`))
	f.Add([]byte(`{"model_type":"llama",` + sizes + `,"rope_scaling":{"type":"yarn","factor":4}}`))
	f.Add([]byte(`{"model_type":"mistral",` + sizes + `,"rope_parameters":{"rope_type":"dynamic","factor":4}}`))
	f.Add([]byte(`{"model_type":"phi3",` + sizes +
		`,"partial_rotary_factor":0.25,"rope_scaling":{"type":"su","short_factor":[1,1],"long_factor":[1,2]}}`))
	f.Add([]byte(`{"model_type":"ministral3",` + sizes +
		`,"rope_parameters":{"type":"yarn","factor":2,"llama_4_scaling_beta":0.1,"original_max_position_embeddings":1}}`))
	f.Add([]byte(`{"model_type":"qwen3_5_moe_text",` + sizes +
		`,"full_attention_interval":2,"linear_num_key_heads":1,"rope_parameters":{"rope_type":"default","mrope_section":[1]}}`))
	f.Add([]byte(`{"model_type":"gemma4_text",` + sizes +
		`,"num_kv_shared_layers":1,"global_head_dim":8,"layer_types":["sliding_attention","full_attention"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := families.ParseConfig(data)
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		for i := range c.NumLayers {
			c.Window(i)
			c.LinearLayer(i)
			if c.KVLayer(i) < 0 {
				t.Fatalf("layer %d of %+v has no keys", i, c)
			}
		}
		freq, scale, err := c.InvFreq(c.MaxPositions)
		if err != nil || len(freq) != c.RotaryColumns()/2 || c.RotaryColumns() > c.HeadDim || !(scale > 0) {
			t.Fatalf("%d frequencies, scale %g, %v", len(freq), scale, err)
		}
		if of := c.QueryScale(c.MaxPositions); of != nil && (of(0) != 1 || !(of(c.MaxPositions-1) >= 1) ||
			math.IsInf(of(c.MaxPositions-1), 0)) {
			t.Fatalf("queries times %g and %g of %+v", of(0), of(c.MaxPositions-1), c)
		}
		for i, w := range freq {
			// its factors may be below 1
			if !(w >= 0 && w <= 1) && (c.RopeScaling.Type != "longrope" || math.IsInf(w, 0)) {
				t.Fatalf("frequency %d = %g of %+v", i, w, c)
			}
		}
	})
}
