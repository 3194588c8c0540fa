//go:build unix

package tokenizer

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestPipesAreRefused: a named pipe that nobody writes to would block the run for ever.
func TestPipesAreRefused(t *testing.T) {
	for _, name := range fileNames {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "real"), []byte(small), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("real", filepath.Join(dir, "tokenizer.json")); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err != nil {
			t.Fatalf("a link to a file: %v", err)
		}
		path := filepath.Join(dir, name)
		os.Remove(path) //nolint:errcheck // only tokenizer.json is there
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := Load(dir)
			done <- err
		}()
		select {
		case err := <-done:
			want := "load tokenizer " + dir + ": " + name + " is a named pipe (FIFO), want a regular file"
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: loading blocks", name)
		}
	}
}
