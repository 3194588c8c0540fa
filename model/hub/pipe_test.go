//go:build unix

package hub

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPipesAreRefused: a named pipe that nobody writes to would block the run for ever.
func TestPipesAreRefused(t *testing.T) {
	index := func(snapshot string) string { return filepath.Join(snapshot, indexFile) }
	for _, c := range []struct {
		name string
		pipe func(model, snapshot string) string
		opts Options
		want string
	}{
		{"ref", func(m, s string) string {
			return filepath.Join(m, "refs", "main")
		}, Options{}, "refs/main is a named pipe (FIFO), want a regular file"},
		{"index", func(m, s string) string {
			os.Remove(filepath.Join(s, singleFile))
			return index(s)
		}, Options{}, "lacks model.safetensors (or"}, //nolint:errcheck // a test
		{"config", func(m, s string) string { return filepath.Join(s, configFile) }, Options{}, "lacks config.json"},
		{"token", func(m, s string) string {
			return filepath.Join(filepath.Dir(filepath.Dir(m)), "token")
		}, Options{}, "token is a named pipe (FIFO), want a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			(&fakeHub{}).start(t)
			root := filepath.Join(os.Getenv("HF_HOME"), "hub")
			dir := put(t, root)
			pipe := c.pipe(filepath.Join(root, "models--org--name"), dir)
			os.Remove(pipe) //nolint:errcheck // it may be absent
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := Resolve(context.Background(), "org/name", c.opts)
				done <- err
			}()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("finding the model blocks")
			}
		})
	}
}

// TestPipeAsRemainder: what an earlier try left is read to its end before the rest is asked for.
func TestPipeAsRemainder(t *testing.T) {
	h := (&fakeHub{files: smallModel()}).start(t)
	blob := filepath.Join(cacheDir(), "blobs", strings.Trim(h.etag("config.json"), `"`)+".incomplete")
	if err := os.MkdirAll(filepath.Dir(blob), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(blob, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := h.resolve(Options{})
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), ".incomplete is a named pipe (FIFO), want a regular file") {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the download blocks")
	}
}
