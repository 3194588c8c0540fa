package golden

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

var rowsOnce sync.Mutex

// Rows returns the path of the 300 rows of gsm8k that the program embeds, which the repository holds packed. The file
// lies in a folder of the machine's temporary files, the same for all processes.
func Rows(t testing.TB) string {
	t.Helper()
	packed := ReadFile(t, Root(t), "configs", "assets", "gsm8k_300.jsonl.gzip")
	data, err := unzip(packed, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(os.TempDir(), "tierlora-test-rows")
	path := filepath.Join(dir, "gsm8k_300.jsonl")
	rowsOnce.Lock()
	defer rowsOnce.Unlock()
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return path
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(dir, "rows")
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
