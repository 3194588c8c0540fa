package export

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// linearModel is a small Qwen3.5 of random numbers, with experts or without, and an adapter of the layers whose heads
// change places.
func linearModel(t *testing.T, experts bool) (dir, lora string) {
	t.Helper()
	const width, inner, vocab, keys, values, size = 32, 48, 64, 2, 6, 16
	config := map[string]any{"model_type": "qwen3_5_text", "hidden_size": width, "intermediate_size": inner,
		"num_hidden_layers": 3, "full_attention_interval": 3, "vocab_size": vocab,
		"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 24, "linear_num_key_heads": keys,
		"linear_num_value_heads": values, "linear_key_head_dim": size,
		"linear_value_head_dim": size, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "hidden_act": "silu",
		"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}}
	mlp := map[string][]int{"mlp.gate_proj": {inner, width}, "mlp.up_proj": {inner, width},
		"mlp.down_proj": {width, inner}}
	if experts {
		config["model_type"], config["num_experts"], config["num_experts_per_tok"], config["moe_intermediate_size"],
			config["shared_expert_intermediate_size"] = "qwen3_5_moe_text", 4, 2, 24, 40
		mlp = map[string][]int{"mlp.gate": {4, width}, "mlp.shared_expert_gate": {1, width},
			"mlp.shared_expert.gate_proj": {40, width}, "mlp.shared_expert.up_proj": {40, width},
			"mlp.shared_expert.down_proj": {width, 40}}
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var all []weights.Tensor
	add := func(name string, scale float64, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.NormFloat64() * scale)
		}
		one, err := weights.FromFloat32s(name, weights.F32, shape, x)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	add("model.embed_tokens.weight", 1, vocab, width)
	add("model.norm.weight", 0.2, width)
	add("lm_head.weight", 0.5, vocab, width)
	adapted := map[string][2]int{}
	for i := range 3 {
		layer := fmt.Sprintf("model.layers.%d.", i)
		linears := map[string][]int{"self_attn.q_proj": {96, width}, "self_attn.k_proj": {24, width},
			"self_attn.v_proj": {24, width}, "self_attn.o_proj": {width, 48}}
		if i < 2 {
			linears = map[string][]int{"linear_attn.in_proj_qkv": {2*keys*size + values*size, width},
				"linear_attn.in_proj_z": {values * size, width},
				"linear_attn.in_proj_b": {values, width}, "linear_attn.in_proj_a": {values, width},
				"linear_attn.out_proj": {width, values * size}}
			add(layer+"linear_attn.conv1d.weight", 0.6, 2*keys*size+values*size, 1, 4)
			add(layer+"linear_attn.A_log", 1, values)
			add(layer+"linear_attn.dt_bias", 1, values)
			add(layer+"linear_attn.norm.weight", 1, size)
		} else {
			add(layer+"self_attn.q_norm.weight", 0.2, 24)
			add(layer+"self_attn.k_norm.weight", 0.2, 24)
		}
		for _, name := range slices.Sorted(maps.Keys(linears)) {
			add(layer+name+".weight", 0.25, linears[name]...)
			adapted[layer+name] = [2]int{linears[name][1], linears[name][0]}
		}
		for _, name := range slices.Sorted(maps.Keys(mlp)) {
			add(layer+name+".weight", 0.25, mlp[name]...)
		}
		if experts {
			add(layer+"mlp.experts.gate_up_proj", 0.25, 4, 48, width)
			add(layer+"mlp.experts.down_proj", 0.25, 4, width, 24)
		}
		add(layer+"input_layernorm.weight", 0.2, width)
		add(layer+"post_attention_layernorm.weight", 0.2, width)
	}
	if err := weights.Write(filepath.Join(dir, "model.safetensors"), all, nil); err != nil {
		t.Fatal(err)
	}
	return dir, adapterOf(t, adapted, func(bool, int) float32 { return float32(random.NormFloat64() / 3) })
}

// TestLlamaCPPReadsLinearAttention: llama.cpp's logits of Qwen3.5 are the trainer's own, alone, with an adapter, and
// merged with it.
func TestLlamaCPPReadsLinearAttention(t *testing.T) {
	python := withLlamaCPP(t)
	ctx := context.Background()
	ids := make([]int32, 90)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range ids {
		ids[i] = random.Int32N(64)
	}
	var cases []llamaCase
	var want []logits
	for _, experts := range []bool{false, true} {
		dir, lora := linearModel(t, experts)
		file := func(o Options) string {
			o.Model, o.DType = dir, "f32"
			o.Out = filepath.Join(t.TempDir(), "m.gguf")
			if _, err := Export(ctx, o, session.Env{}); err != nil {
				t.Fatal(err)
			}
			return o.Out
		}
		own, err := logitsOf(ctx, dir, "", ids)
		if err != nil {
			t.Fatal(err)
		}
		with, err := logitsOf(ctx, dir, lora, ids)
		if err != nil {
			t.Fatal(err)
		}
		base := file(Options{Format: "gguf"})
		cases = append(cases, llamaCase{Model: base}, llamaCase{Model: file(Options{Format: "gguf", Adapter: lora})},
			llamaCase{Model: base, LoRA: file(Options{Format: "gguf-lora", Adapter: lora})})
		want = append(want, own, with, with)
	}
	got := askLogits(t, python, cases, ids)
	for i := range want {
		if most, _ := want[i].far(got[i].Logits); most > 5e-4 {
			t.Errorf("case %d: logits differ by up to %.2g", i, most)
		} else {
			t.Logf("case %d: logits differ by up to %.2g", i, most)
		}
	}
	if most, _ := want[0].far(want[1]); most < 0.1 {
		t.Errorf("the adapter changes logits by %.2g only", most)
	}
}
