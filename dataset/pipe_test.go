//go:build unix

package dataset

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// loadSoon loads, and fails when that blocks.
func loadSoon(t *testing.T, load func() (*Set, *Report, error)) error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, _, err := load()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("loading blocks")
	}
	return nil
}

// TestPipesAreRefused: a named pipe that nobody writes to would block the run for ever.
func TestPipesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe, rows, link := filepath.Join(dir, "pipe.jsonl"), filepath.Join(dir, "rows.jsonl"), filepath.Join(dir, "link.jsonl")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rows, []byte("{\"text\":\"a\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(rows, link); err != nil {
		t.Fatal(err)
	}
	const want = ", want a regular file: write the rows into a file first"
	for _, c := range []struct{ path, val, want string }{
		{link, "", ""},
		{pipe, "", "read data: " + pipe + " is a named pipe (FIFO)" + want},
		{rows, pipe, "read data: " + pipe + " is a named pipe (FIFO)" + want},
		{os.DevNull, "", "read data: " + os.DevNull + " is a device" + want},
	} {
		for _, cacheDir := range []string{"", filepath.Join(dir, "cache")} {
			cfg := Default()
			cfg.Path, cfg.ValPath, cfg.CacheDir = c.path, c.val, cacheDir
			err := loadSoon(t, func() (*Set, *Report, error) { return Load(context.Background(), cfg, bytesTokenizer{}) })
			if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("%s %s: got %v, want %q", c.path, c.val, err, c.want)
			}
		}
	}
	cfg := Default()
	cfg.Sources = []Source{{Path: dir + "/*.jsonl", Split: "train[:1]", Weight: 1}}
	err := loadSoon(t, func() (*Set, *Report, error) { return Load(context.Background(), cfg, bytesTokenizer{}) })
	if err == nil || err.Error() != "read data: "+pipe+" is a named pipe (FIFO)"+want {
		t.Errorf("among others: %v", err)
	}
	cfg = Default()
	cfg.Path = "pipe.jsonl"
	err = loadSoon(t, func() (*Set, *Report, error) {
		return LoadFS(context.Background(), os.DirFS(dir), cfg, bytesTokenizer{})
	})
	if err == nil || err.Error() != "read data: pipe.jsonl is a named pipe (FIFO)"+want {
		t.Errorf("in a file system: %v", err)
	}
}

// TestPipeInTheCache: a pipe in the place of an entry costs the cache, not the run.
func TestPipeInTheCache(t *testing.T) {
	cfg, _ := cacheFile(t)
	mustLoad(t, cfg, bytesTokenizer{})
	for _, entry := range entries(t, cfg) {
		if err := os.Remove(entry); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(entry, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := loadSoon(t, func() (*Set, *Report, error) { return Load(context.Background(), cfg, bytesTokenizer{}) })
	if err != nil {
		t.Error(err)
	}
}
