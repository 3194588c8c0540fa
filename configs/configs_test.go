package configs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestNamesAreTheFolder(t *testing.T) {
	for pattern, names := range map[string][]string{"*.yaml": Names(), "examples/*.yaml": Examples()} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(paths) == 0 || len(names) != len(paths) || !slices.IsSorted(names) {
			t.Fatalf("embedded are %v, the folder has %v", names, paths)
		}
		compareFiles(t, names, paths)
	}
	if _, ok := Read("assets/gsm8k_300.jsonl"); ok {
		t.Error("an asset was read as a configuration")
	}
}

func compareFiles(t *testing.T, names, paths []string) {
	t.Helper()
	for i, path := range paths {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{names[i], names[i] + ".yaml"} {
			if got, ok := Read(name); !ok || string(got) != string(want) {
				t.Errorf("%s is not the file %s", name, path)
			}
		}
	}
}

func TestAssets(t *testing.T) {
	model, err := Model("stories260K")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors", "LICENSE"} {
		if info, err := fs.Stat(model, name); err != nil || info.Size() == 0 {
			t.Errorf("the embedded model has no %s: %v", name, err)
		}
	}
	data, err := Data("gsm8k_300.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(data, "gsm8k_300.jsonl")
	if err != nil || strings.Count(string(text), "\n") != 300 {
		t.Errorf("the embedded data set has %d lines, want 300 (%v)", strings.Count(string(text), "\n"), err)
	}
	if _, err := Data("x.json"); err == nil || err.Error() != `there is no embedded reference curve "x.json"; there is smollm2_convergence.json, smollm2_quick.json` {
		t.Errorf("error %v", err)
	}
	for _, name := range []string{"", ".", "..", "nothing", "../configs.go", "stories260K/config.json", "/"} {
		if _, err := Model(name); err == nil {
			t.Errorf("Model(%q) gave no error", name)
		}
		if _, err := Data(name); err == nil {
			t.Errorf("Data(%q) gave no error", name)
		}
	}
	if _, err := Model("stories"); err == nil || err.Error() != `there is no embedded model "stories"; there is stories260K` {
		t.Errorf("error %v", err)
	}
	if _, err := Data("stories260K"); err == nil || err.Error() != `there is no embedded data set "stories260K"; there is gsm8k_300.jsonl, gsm8k_test_64.jsonl, gsm8k_train_1000.jsonl.gz` {
		t.Errorf("error %v", err)
	}
}
