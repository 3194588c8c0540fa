package export

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// TestGemma4AsGGUF: adapters of Gemma 4 alone are written, but for one of a layer that llama.cpp has no update for.
// Nothing is left of what is refused.
func TestGemma4AsGGUF(t *testing.T) {
	export := func(m golden.FamilyModel) (Report, error) {
		dir, out := m.Dir(t), filepath.Join(t.TempDir(), "m.gguf")
		r, err := Export(context.Background(), Options{Format: "gguf-lora", Model: dir, Adapter: m.Adapter(t), Out: out,
			DType: "f32"}, session.Env{})
		if _, there := os.Lstat(out); err != nil && there == nil {
			t.Errorf("%s: a file was written", m.Name)
		}
		return r, err
	}
	const want = "the update of model.per_layer_model_projection has no place in a GGUF adapter: export the merged " +
		"model (--format gguf --adapter)"
	if _, err := export(golden.FamilyModel{Folder: "gemma4", Name: "gemma4_text"}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	for name, tensors := range map[string]int{"gemma4/gemma4": 26, "gemma4_unified/gemma4_unified": 26,
		"gemma4_unified/gemma4_unified_text": 42} {
		folder, name, _ := strings.Cut(name, "/")
		if r, err := export(golden.FamilyModel{Folder: folder, Name: name}); err != nil || r.Tensors != tensors {
			t.Errorf("%s: %d tensors of %d: %v", name, r.Tensors, tensors, err)
		}
	}
}
