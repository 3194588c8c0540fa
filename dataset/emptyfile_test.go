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
