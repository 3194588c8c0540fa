package model_test

import (
	"testing"

	"github.com/tierlora/tierlora/model/families"
)

// TestSmolVLMConfig reads the keys that config.json of SmolVLM-256M-Instruct has.
func TestSmolVLMConfig(t *testing.T) {
	c, err := families.ParseConfig([]byte(`{"architectures":["Idefics3ForConditionalGeneration"],"image_token_id":49190,
		"model_type":"idefics3","scale_factor":4,"tie_word_embeddings":false,"torch_dtype":"bfloat16",
		"text_config":{"_flash_attn_2_enabled":true,"_name_or_path":"None","architectures":["VLlama3ForCausalLM"],
		"head_dim":64,"hidden_size":576,"intermediate_size":1536,"is_llama_config":true,"max_position_embeddings":8192,
		"model_type":"llama","neftune_noise_alpha":0.0,"num_attention_heads":9,"num_hidden_layers":30,
		"num_key_value_heads":3,"pad_token_id":2,"perceiver_config":{"model_type":"vllama3"},"pixel_shuffle_factor":4,
		"qk_layer_norms":false,"rms_norm_eps":1e-05,"rope_interleaved":false,"rope_theta":100000,
		"torch_dtype":"bfloat16","transformers.js_config":{},"use_cache":true,"use_resampler":false,"vocab_size":49280},
		"transformers_version":"4.46.0","use_cache":false,"vision_config":{"patch_size":16,"image_size":512}}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.HiddenSize != 576 || c.NumLayers != 30 || c.RopeTheta != 1e5 || c.Scope() != "model.text_model" ||
		c.TieEmbeddings || !c.Multimodal {
		t.Errorf("%+v", c)
	}
}
