package session_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// TestFusedExpertsAreRead: a folder whose experts transformers 5 saved as one tensor a layer has the tensors, to the
// byte, of that where each has its own: what is loaded or quantised from them is the same then.
func TestFusedExpertsAreRead(t *testing.T) {
	for _, family := range []string{"mixtral", "qwen2_moe", "qwen3_moe"} {
		t.Run(family, func(t *testing.T) {
			b, err := session.OpenBase(t.Context(), golden.Path(t, "fused_files/"+family), session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			var want map[string][2]any
			golden.JSON(t, golden.Path(t, "fused_files/"+family+"/separate.json"), &want)
			if names := slices.Sorted(maps.Keys(want)); !slices.Equal(b.Weights.Names(), names) {
				t.Fatalf("tensors\n%v, want\n%v", b.Weights.Names(), names)
			}
			for _, name := range b.Weights.Names() {
				tensor, _ := b.Weights.Tensor(name)
				sum := sha256.Sum256(tensor.Data)
				shape := []any{}
				for _, n := range tensor.Shape {
					shape = append(shape, float64(n))
				}
				if tensor.Name != name || !slices.Equal(shape, want[name][0].([]any)) || hex.EncodeToString(sum[:]) != want[name][1] {
					t.Errorf("%s: %s %v has other bytes than transformers writes", name, tensor.Name, tensor.Shape)
				}
			}
		})
	}
}

func TestFusedExpertsRefuse(t *testing.T) {
	from := golden.Path(t, "fused_files/qwen3_moe")
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	const gateUp, down = "model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.experts.down_proj"
	for _, c := range []struct {
		config func(string) string
		change func(tensors map[string]weights.Tensor)
		want   string
	}{
		{func(s string) string {
			return strings.Replace(s, `"num_local_experts": 3`, `"num_local_experts": 4`, 1)
		}, nil,
			down + ": shape [3 8 6], expected [4 8 6], the experts' down_proj as transformers 5 fuses them"},
		{nil, func(m map[string]weights.Tensor) { x := m[gateUp]; x.Shape = []int{3, 8, 12}; m[gateUp] = x },
			gateUp + ": shape [3 8 12], expected [3 12 8], the experts' gate_proj and up_proj as transformers 5 fuses them"},
		{nil, func(m map[string]weights.Tensor) {
			const own = "model.layers.1.mlp.experts.2.up_proj.weight"
			x := m[gateUp]
			m[own] = weights.Tensor{Name: own, DType: x.DType, Shape: []int{6, 8}, Data: x.Data[:6*8*2]}
		}, gateUp + ` and "model.layers.1.mlp.experts.2.up_proj.weight" are both there: experts are one tensor a layer or a tensor each`},
	} {
		set, err := weights.OpenDir(from)
		if err != nil {
			t.Fatal(err)
		}
		tensors := map[string]weights.Tensor{}
		for _, name := range set.Names() {
			tensors[name], _ = set.Tensor(name)
		}
		text := string(config)
		if c.config != nil {
			text = c.config(text)
		}
		if c.change != nil {
			c.change(tensors)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := weights.Write(filepath.Join(dir, weights.SingleFile), slices.Collect(maps.Values(tensors)), nil); err != nil {
			t.Fatal(err)
		}
		b, err := session.OpenBase(context.Background(), dir, session.Env{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
		if err == nil {
			b.Close()
		}
		set.Close()
	}
}
