//go:build unix

package dataset

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinksInTheCache: a link or a hard link under the name that a cache file has while it is written is left alone, with
// what it leads to; the rows are read without a cache, and the report says why.
func TestLinksInTheCache(t *testing.T) {
	for name, link := range map[string]func(old, name string) error{"link": os.Symlink, "hard link": os.Link} {
		cfg := workersConfig(t, 2, mixedRows(200, false))
		mustLoad(t, cfg, bytesTokenizer{})
		entry := tokensOf(t, cfg)
		precious := filepath.Join(t.TempDir(), "precious")
		if err := errors.Join(os.Remove(entry), os.WriteFile(precious, []byte("precious"), 0o600), link(precious, entry+".part")); err != nil {
			t.Fatal(err)
		}
		set, report := mustLoad(t, cfg, bytesTokenizer{})
		if !strings.Contains(report.CacheNote, "not written: "+entry+".part is ") || set.Train.Len() == 0 {
			t.Errorf("%s: %q", name, report.CacheNote)
		}
		if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
			t.Errorf("%s: the file holds %q, %v", name, text, err)
		}
	}
}
