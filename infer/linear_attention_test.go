package infer

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
)

// TestNoLayerHasKeys: a model whose layers all have linear attention has no place for keys in its batches.
func TestNoLayerHasKeys(t *testing.T) {
	m := golden.FamilyModel{Folder: "linear_attention", Name: "qwen3_5_text"}
	dir := m.Dir(t)
	path := filepath.Join(dir, "config.json")
	config := golden.ReadFile(t, path)
	for from, to := range map[string]string{"\"full_attention\"": "\"linear_attention\"",
		"\"num_hidden_layers\": 4": "\"num_hidden_layers\": 3"} {
		if !bytes.Contains(config, []byte(from)) {
			t.Fatalf("config.json has no %s", from)
		}
		config = bytes.Replace(config, []byte(from), []byte(to), 1)
	}
	config = bytes.Replace(config, []byte("\"linear_attention\",\n  "), nil, 1)
	if err := os.WriteFile(path, config, 0o644); err != nil {
		t.Fatal(err)
	}
	all, err := weights.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var kept []weights.Tensor
	for _, name := range all.Names() {
		if x, _ := all.Tensor(name); !strings.Contains(name, ".layers.3.") {
			x.Data = bytes.Clone(x.Data)
			kept = append(kept, x)
		}
	}
	if err := all.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, weights.SingleFile)); err != nil {
		t.Fatal(err)
	}
	if err := weights.WriteDir(dir, kept, nil, 1<<30, nil); err != nil {
		t.Fatal(err)
	}
	g := generator(t, dir, "")
	ids, err := g.generateIDs(context.Background(), m.Runs(t).Texts[0].Prompt, GenerateOptions{MaxTokens: 4})
	if err != nil || len(ids) != 4 {
		t.Errorf("ids %v, %v", ids, err)
	}
}
