package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOwnFilesAlone: a file that somebody named is replaced where the program wrote it, or where it is empty.
func TestOwnFilesAlone(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]bool{
		"":                                   true,
		"# MARK one":                         true,
		"\n\n# MARK two":                     true,
		"precious":                           false,
		strings.Repeat("x", 5000) + "# MARK": false,
	} {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		err := CheckOwn(path, "a page", "# MARK", "# OTHER")
		if (err == nil) != want || err != nil && (!errors.Is(err, ErrNotOurs) || !strings.Contains(err.Error(),
			"is not a page that this program wrote")) {
			t.Errorf("%.20q: %v", content, err)
		}
	}
	if err := CheckOwn(filepath.Join(dir, "absent"), "a page"); err != nil {
		t.Error(err)
	}
	if err := CheckOwn(dir, "a page"); !errors.Is(err, ErrNotOurs) {
		t.Error(err)
	}
	if _, err := Create(filepath.Join(dir, "f"), 0o644); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
}
