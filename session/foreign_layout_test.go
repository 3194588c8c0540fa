package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/model/weights"
)

// TestUnslothsExperts: a folder of gpt_oss whose experts are linear layers, as Unsloth's are, is known by its tensors.
func TestUnslothsExperts(t *testing.T) {
	dir := t.TempDir()
	config := `{"model_type": "gpt_oss", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
		"num_key_value_heads": 1, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "max_position_embeddings": 16}`
	var all []weights.Tensor
	for e := range 2 {
		for _, name := range []string{"gate_up_projs", "down_projs"} {
			all = append(all, weights.Tensor{Name: fmt.Sprintf("model.layers.0.mlp.experts.%s.%d.weight", name, e), DType: weights.F32, Shape: []int{1}, Data: make([]byte, 4)})
		}
	}
	all = append(all, weights.Tensor{Name: "model.layers.0.mlp.router.linear.bias", DType: weights.F32, Shape: []int{1}, Data: make([]byte, 4)})
	raw, err := weights.Encode(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"config.json": []byte(config), "model.safetensors": raw} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := OpenBase(context.Background(), dir, Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	want := []string{"model.layers.0.mlp.experts.0.down_proj.weight", "model.layers.0.mlp.experts.0.gate_up_proj.weight",
		"model.layers.0.mlp.experts.1.down_proj.weight", "model.layers.0.mlp.experts.1.gate_up_proj.weight", "model.layers.0.mlp.router.bias"}
	if got := b.Weights.Names(); !b.Config.ExpertLayers || !slices.Equal(got, want) {
		t.Errorf("experts as layers: %v, tensors %v, want %v", b.Config.ExpertLayers, got, want)
	}
}
