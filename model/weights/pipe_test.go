//go:build unix

package weights

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPipesAreRefused: a named pipe that nobody writes to would block the run for ever.
func TestPipesAreRefused(t *testing.T) {
	data, err := Encode([]Tensor{tensor(t, "a", 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{SingleFile, IndexFile} {
		for _, open := range []func(dir string) (*Set, error){
			OpenDir, func(dir string) (*Set, error) { return OpenFS(os.DirFS(dir), ".") },
		} {
			dir := t.TempDir()
			if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := open(dir)
				done <- err
			}()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), name+" is a named pipe (FIFO), want a regular file") {
					t.Errorf("%s: %v", name, err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: opening blocks", name)
			}
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "blob"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("blob", filepath.Join(dir, SingleFile)); err != nil {
		t.Fatal(err)
	}
	set, err := OpenDir(dir)
	if err != nil {
		t.Fatalf("a link to a file: %v", err)
	}
	if err := set.Close(); err != nil {
		t.Error(err)
	}
}
