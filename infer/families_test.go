package infer

import (
	"context"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
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
			ids, _, err := g.generateIDs(context.Background(), w.Prompt, GenerateOptions{MaxTokens: len(w.New)}, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", m.Name, err)
			}
			if !slices.Equal(ids, w.New) {
				t.Errorf("%s: after %v ids %v, transformers %v", m.Name, w.Prompt, ids, w.New)
			}
		}
	}
}
