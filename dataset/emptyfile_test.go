package dataset

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFileWithoutRowsToTrain: of several files one may have none, whose rows are counted as dropped; all may not.
func TestFileWithoutRowsToTrain(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "one\n", "b.txt": "\n\n", "c.txt": "two\n", "d.txt": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Default()
	cfg.Path, cfg.Format, cfg.CacheDir = dir, "text", filepath.Join(t.TempDir(), "cache")
	for range 2 { // the second time the other two come from the cache
		set, r, err := Load(context.Background(), cfg, bytesTokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		if set.Train.Len() != 2 || r.Rows != 5 || r.Kept != 2 || r.Files != 4 || len(r.Dropped) != 1 || r.Dropped[0].Count != 3 || len(r.SHA256) != 64 {
			t.Errorf("%d rows, report %+v", set.Train.Len(), r)
		}
	}
	for _, name := range []string{"a.txt", "c.txt"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := Load(context.Background(), cfg, bytesTokenizer{})
	if err == nil || !strings.HasPrefix(err.Error(), dir+": no row is left to train on, all 3 were dropped: 3 because the text is empty (") {
		t.Errorf("of no file: %v", err)
	}
}

// TestNoValidationRow: validation rows that are all dropped are an error that says that they are those of validation.
func TestNoValidationRow(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"train.jsonl": `{"prompt":"a","completion":"b"}`, "val.jsonl": `{"prompt":"a","completion":""}`, "more.jsonl": `{"prompt":"c","completion":""}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, change := range map[string]func(*Config){
		"val_path": func(c *Config) { c.ValPath = in("val.jsonl") },
		"val_sources": func(c *Config) {
			c.ValSources = []Source{{Path: in("val.jsonl"), Weight: 1}, {Path: in("more.jsonl"), Weight: 1}}
		},
		"streaming": func(c *Config) { c.ValPath, c.Streaming = in("val.jsonl"), true },
	} {
		cfg := Default()
		cfg.Path = in("train.jsonl")
		change(&cfg)
		_, _, err := Load(context.Background(), cfg, bytesTokenizer{})
		want := in("val.jsonl") + ": no validation row is left, all 1 were dropped: 1 because the answer is empty (" + in("val.jsonl") + ":1); name other validation rows, or none"
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
