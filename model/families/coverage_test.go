package families_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/weights"
)

// TestEveryFamilyIsProved: each family of the table has a small model with logits of transformers, PEFT's gradients of
// its adapters, and a run: rows with their NLL, greedy texts, and twenty QLoRA steps. Other tests compare with them.
func TestEveryFamilyIsProved(t *testing.T) {
	logits, gradients, runs := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, folder := range append([]string{"families"}, golden.FamilyFolders...) {
		named := map[string]bool{}
		for _, name := range tensors(t, golden.Path(t, folder+"/logits.safetensors")) {
			named[strings.TrimSuffix(name, ".logits")] = true
		}
		files, err := filepath.Glob(golden.Path(t, folder+"/*.config.json*")) // packed or not
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no models (%v)", folder, err)
		}
		for _, file := range files {
			name, _, _ := strings.Cut(filepath.Base(file), ".config.json")
			config, err := families.ParseConfig(golden.ReadFile(t, golden.Path(t, folder+"/"+name+".config.json")))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			logits[config.ModelType] = logits[config.ModelType] || named[name]
			if _, err := os.Stat(golden.Path(t, folder+"/"+name+".lora/grads.safetensors")); err == nil {
				gradients[config.ModelType] = true
			}
			if _, err := os.Stat(golden.Path(t, folder+"/"+name+".runs.json")); err == nil {
				r := golden.FamilyModel{Folder: folder, Name: name}.Runs(t)
				whole := len(r.Curve.Loss) == 20 && len(r.Rows) > 0 && r.Mean > 0 && len(r.Texts) > 1
				if !whole {
					t.Errorf("%s/%s: a curve of %d steps, %d rows, %d texts", folder, name, len(r.Curve.Loss),
						len(r.Rows), len(r.Texts))
				}
				runs[config.ModelType] = runs[config.ModelType] || whole
			}
		}
	}
	for _, family := range slices.Sorted(maps.Keys(families.Table)) {
		for what, have := range map[string]map[string]bool{"logits": logits, "gradients": gradients,
			"runs with a QLoRA curve": runs} {
			if !have[family] {
				t.Errorf("%s has no %s of transformers and PEFT under internal/golden/testdata", family, what)
			}
		}
	}
}

// tensors are the names in a file; none where there is none.
func tensors(t *testing.T, path string) []string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Names()
}
