package infer

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// TestFamiliesGenerateAsTransformers continues prompts greedily, token by token over the cache.
func TestFamiliesGenerateAsTransformers(t *testing.T) {
	for _, m := range golden.FamilyModels(t) {
		g := generator(t, m.Dir(t), "")
		texts := m.Runs(t).Texts
		if len(texts) < 2 {
			t.Fatalf("%s: %d texts", m.Name, len(texts))
		}
		for _, w := range texts {
			ids, err := g.generateIDs(context.Background(), w.Prompt, GenerateOptions{MaxTokens: len(w.New)})
			if err != nil {
				t.Fatalf("%s: %v", m.Name, err)
			}
			if !slices.Equal(ids, w.New) {
				t.Errorf("%s: after %v ids %v, transformers %v", m.Name, w.Prompt, ids, w.New)
			}
		}
	}
}

// TestSuppressedTokens: what generation_config.json suppresses is never chosen, whether the likeliest token is taken or
// one is drawn.
func TestSuppressedTokens(t *testing.T) {
	m := golden.FamilyModel{Folder: "gemma4_experts", Name: "gemma4_experts"}
	dir, want := m.Dir(t), m.Runs(t).Suppressed
	// two that no model has
	raw, err := json.Marshal(map[string]any{"suppress_tokens": append([]int32{-1, 1 << 30}, want.IDs...)})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "generation_config.json")
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	g := generator(t, dir, "")
	for _, w := range want.Texts {
		ids, err := g.generateIDs(context.Background(), w.Prompt, GenerateOptions{MaxTokens: len(w.New)})
		if err != nil || !slices.Equal(ids, w.New) {
			t.Errorf("after %v ids %v, transformers %v (%v)", w.Prompt, ids, w.New, err)
		}
		for seed := range uint64(20) {
			ids, err := g.generateIDs(context.Background(), w.Prompt, GenerateOptions{MaxTokens: 10,
				Temperature: 3, Seed: seed})
			if err != nil || slices.ContainsFunc(ids, func(id int32) bool { return slices.Contains(want.IDs, id) }) {
				t.Errorf("drawn with seed %d: %v, of which %v are suppressed (%v)", seed, ids, want.IDs, err)
			}
		}
	}
	var all []int
	for id := range g.Base.Config.VocabSize {
		all = append(all, id)
	}
	every, err := json.Marshal(map[string]any{"suppress_tokens": all})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{`{"suppress_tokens": "none"}`: `suppress_tokens is "none", want a list ` +
		`of ids`, string(every): "which leaves none to generate"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := NewGenerator(context.Background(), session.Options{Model: dir, Device: "cpu"}, "",
			session.Env{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

// TestNoLayerHasPositions: a model whose layers all go without positions has no place for them in its batches.
func TestNoLayerHasPositions(t *testing.T) {
	m := golden.FamilyModel{Folder: "llama_like", Name: "smollm3"}
	dir := m.Dir(t)
	path := filepath.Join(dir, "config.json")
	var config map[string]any
	if err := json.Unmarshal(golden.ReadFile(t, path), &config); err != nil {
		t.Fatal(err)
	}
	config["no_rope_layers"] = make([]int, int(config["num_hidden_layers"].(float64)))
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	g := generator(t, dir, "")
	ids, err := g.generateIDs(context.Background(), m.Runs(t).Texts[0].Prompt, GenerateOptions{MaxTokens: 4})
	if err != nil || len(ids) != 4 {
		t.Errorf("ids %v, %v", ids, err)
	}
	rows := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(rows, []byte(`{"input_ids":[5,6,7,8],"labels":[-100,6,7,8]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	data := dataset.Default()
	data.Path, data.Format, data.MaxLength = rows, "tokenized", 16
	report, err := Evaluate(context.Background(), EvalOptions{Options: session.Options{Model: dir, Device: "cpu"},
		Data: data, BatchSize: 1}, session.Env{})
	if err != nil || report.TrainedTokens != 3 {
		t.Errorf("evaluation %+v, %v", report, err)
	}
}
