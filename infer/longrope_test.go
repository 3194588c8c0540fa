package infer

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestLongRoPEGoesByTheText: the long factors change no text that is short by itself, though there is memory for more,
// and before and after one that is long.
func TestLongRoPEGoesByTheText(t *testing.T) {
	m := golden.FamilyModel{Folder: "phi", Name: "phi4_mini"}
	prompt := make([]int32, 40)
	for i := range prompt {
		prompt[i] = int32(3 + i*7%50)
	}
	var short, long [2][]float32
	for k, by := range []float64{1, 3} {
		dir := m.Dir(t)
		path := filepath.Join(dir, "config.json")
		var config map[string]any
		if err := json.Unmarshal(golden.ReadFile(t, path), &config); err != nil {
			t.Fatal(err)
		}
		rope := config["rope_scaling"].(map[string]any)
		factors := rope["long_factor"].([]any)
		for i := range factors {
			factors[i] = factors[i].(float64) * by
		}
		config["max_position_embeddings"], config["original_max_position_embeddings"] = 512, 32
		raw, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		g := generator(t, dir, "")
		first := g.logitsAfter(t, prompt[:20], 1)[0]
		long[k] = g.logitsAfter(t, prompt, 1)[0]
		short[k] = g.logitsAfter(t, prompt[:20], 1)[0]
		if !slices.Equal(first, short[k]) {
			t.Error("a short text after a long one has other logits than before it")
		}
	}
	if !slices.Equal(short[0], short[1]) {
		t.Error("the logits of a short text depend on the long factors")
	}
	if slices.Equal(long[0], long[1]) {
		t.Error("the logits of a long text do not depend on the long factors")
	}
}

// TestNoTokens: an answer that ends at once has no tokens, which JSON says as an empty list.
func TestNoTokens(t *testing.T) {
	m := golden.FamilyModel{Folder: "phi", Name: "phi4_mini"}
	dir, text := m.Dir(t), m.Runs(t).Texts[0]
	path := filepath.Join(dir, "config.json")
	var config map[string]any
	if err := json.Unmarshal(golden.ReadFile(t, path), &config); err != nil {
		t.Fatal(err)
	}
	config["eos_token_id"] = text.New[0]
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := generator(t, dir, "").Continue(context.Background(), Prompt{IDs: text.Prompt},
		GenerateOptions{MaxTokens: 3}, nil)
	if err != nil || got.Stopped != StoppedEnd || len(got.IDs) != 0 {
		t.Fatal(got, err)
	}
	if raw, err = json.Marshal(got); err != nil || !strings.Contains(string(raw), `"ids":[]`) {
		t.Errorf("%s, %v", raw, err)
	}
}
