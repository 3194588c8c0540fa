package export

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// TestTiedAndUnequal: where config.json says that embeddings and head are one and the folder has two that differ,
// nothing is written.
func TestTiedAndUnequal(t *testing.T) {
	from, model := golden.StoriesDir(t), t.TempDir()
	if err := os.CopyFS(model, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(filepath.Join(from, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []weights.Tensor
	for _, name := range file.Names() {
		if x, _ := file.Tensor(name); name != "lm_head.weight" {
			all = append(all, x)
		}
	}
	head, _ := file.Tensor("model.embed_tokens.weight")
	head.Name, head.Data = "lm_head.weight", append([]byte{}, head.Data...)
	head.Data[5] ^= 1
	raw, err := weights.Encode(append(all, head), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(model, "model.safetensors"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	const want = "tie_word_embeddings is true in config.json, and lm_head.weight is stored beside " +
		"model.embed_tokens.weight with other values"
	adapter := mixed(t)
	for _, o := range []Options{{Format: "gguf"}, {Format: "ollama"}, {Format: "gguf", Adapter: adapter},
		{Format: "gguf-lora", Adapter: adapter}} {
		o.Model, o.Out = model, filepath.Join(t.TempDir(), "out")
		_, err := Export(context.Background(), o, session.Env{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", o.Format, err)
		}
		if _, err := os.Stat(o.Out); err == nil {
			t.Errorf("%s: wrote %s", o.Format, o.Out)
		}
	}
	out := filepath.Join(t.TempDir(), "merged")
	_, err = Merge(context.Background(), MergeOptions{Model: model,
		Adapters: []WeightedAdapter{{Dir: adapter, Weight: 1}}, Out: out}, session.Env{})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("merge: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("merge wrote its folder")
	}
}
