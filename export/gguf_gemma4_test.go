package export

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// TestGemma4AsGGUF: adapters of Gemma 4 alone are written, but for one of a layer that llama.cpp has no update for; experts are refused.
// Nothing is left of what is refused.
func TestGemma4AsGGUF(t *testing.T) {
	export := func(m golden.FamilyModel, edit func(config map[string]any)) (Report, error) {
		dir, out := m.Dir(t), filepath.Join(t.TempDir(), "m.gguf")
		if edit != nil {
			var config map[string]any
			golden.JSON(t, filepath.Join(dir, "config.json"), &config)
			edit(config)
			raw, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Export(context.Background(), Options{Format: "gguf-lora", Model: dir, Adapter: m.Adapter(t), Out: out, DType: "f32"}, session.Env{})
		if _, there := os.Lstat(out); err != nil && there == nil {
			t.Errorf("%s: a file was written", m.Name)
		}
		return r, err
	}
	small := golden.FamilyModel{Folder: "gemma4", Name: "gemma4_text"}
	for want, edit := range map[string]func(config map[string]any){
		"the update of model.per_layer_model_projection has no place in a GGUF adapter: export the merged model (--format gguf --adapter)": nil,
		"enable_moe_block = true: experts beside the MLP, as Gemma 4 26B-A4B has them, are not supported":                                  func(c map[string]any) { c["enable_moe_block"] = true },
	} {
		if _, err := export(small, edit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for name, tensors := range map[string]int{"gemma4/gemma4": 26, "gemma4_unified/gemma4_unified": 26, "gemma4_unified/gemma4_unified_text": 42} {
		folder, name, _ := strings.Cut(name, "/")
		if r, err := export(golden.FamilyModel{Folder: folder, Name: name}, nil); err != nil || r.Tensors != tensors {
			t.Errorf("%s: %d tensors of %d: %v", name, r.Tensors, tensors, err)
		}
	}
}
