package train

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// withoutWeights is a copy of the small model's folder that holds no weights, its configuration changed.
func withoutWeights(t testing.TB, changed ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"config.json", "tokenizer.json"} {
		b := golden.ReadFile(t, golden.StoriesDir(t), name)
		if name == "config.json" {
			b = []byte(strings.NewReplacer(changed...).Replace(string(b)))
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPlanWithoutWeights: a folder with config.json and a tokenizer plans as the whole model does; a run needs the weights.
func TestPlanWithoutWeights(t *testing.T) {
	s := testSpec(t, 10)
	s.VRAM = "1GiB"
	whole, err := PlanRun(context.Background(), s, Env{})
	if err != nil {
		t.Fatal(err)
	}
	s.BaseModel = withoutWeights(t)
	bare, err := PlanRun(context.Background(), s, Env{})
	if err != nil {
		t.Fatal(err)
	}
	if want := s.BaseModel + " holds no weights: their names and shapes follow from its config.json"; len(bare.Notes) != len(whole.Notes)+1 || bare.Notes[0] != want {
		t.Errorf("notes %q, want %q first", bare.Notes, want)
	}
	bare.Model, bare.Notes = whole.Model, whole.Notes
	if !reflect.DeepEqual(bare, whole) {
		t.Errorf("without weights\n got %v\nwant %v", bare, whole)
	}
	if _, err := Start(context.Background(), s, Env{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "has neither model.safetensors nor model.safetensors.index.json") {
		t.Errorf("a run: %v", err)
	}
	// Weights that are there count, and those in another form are named.
	if err := os.WriteFile(filepath.Join(s.BaseModel, "pytorch_model.bin"), []byte("PK\x03\x04"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := PlanRun(context.Background(), s, Env{}); err == nil || !strings.Contains(err.Error(), "pytorch_model.bin is ") {
		t.Errorf("a pickle: %v", err)
	}
}
