//go:build linux || darwin

package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
)

// TestModelFileChanges: a safetensors file that another process shortens or overwrites while the model loads is an
// error that names the file. One that is replaced by a rename, or removed, is not: the weights are those of the file
// that was opened.
func TestModelFileChanges(t *testing.T) {
	data := golden.ReadFile(t, golden.Path(t, "families/llama_biases.safetensors"))
	config := golden.ReadFile(t, golden.Path(t, "families/llama_biases.config.json"))
	for name, c := range map[string]struct {
		change func(path string) error
		wrong  bool
	}{
		"untouched":   {func(string) error { return nil }, false},
		"shortened":   {func(path string) error { return os.Truncate(path, 4096) }, true},
		"emptied":     {func(path string) error { return os.Truncate(path, 0) }, true},
		"overwritten": {func(path string) error { return overwrite(path, data) }, true},
		"renamed over": {func(path string) error {
			return errors.Join(os.WriteFile(path+".new", make([]byte, len(data)), 0o600), os.Rename(path+".new", path))
		}, false},
		"removed": {os.Remove, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "model.safetensors")
			if err := errors.Join(os.WriteFile(path, data, 0o600), os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)); err != nil {
				t.Fatal(err)
			}
			past := time.Now().Add(-time.Hour)
			if err := os.Chtimes(path, past, past); err != nil {
				t.Fatal(err)
			}
			b, err := OpenBase(context.Background(), dir, Env{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if err := c.change(path); err != nil {
				t.Fatal(err)
			}
			err = rescue.Do(func() error { return loadAll(b) })
			var changed *rescue.ChangedError
			switch {
			case !c.wrong && err != nil:
				t.Error(err)
			case c.wrong && (!errors.As(err, &changed) || changed.Path != path || !strings.Contains(err.Error(), "changed while it was in use")):
				t.Errorf("error %v", err)
			}
		})
	}
}

// loadAll loads a base model's weights into memory of a CPU's plan.
func loadAll(b *Base) error {
	build, err := families.For(b.Config)
	if err != nil {
		return err
	}
	nw := Network{Config: b.Config, Build: build, Float: kernel.F32}
	n, _, in := nw.Declare("", Shape{Tokens: 4, Sequences: 1, MaxLen: 4})
	hidden := nw.Hidden(n, in)
	nw.Head(n)
	on := graph.NewCPU(1)
	plan, err := on.Compile(n.Builder, hidden)
	if err != nil {
		return err
	}
	_, err = Hold(on, func(m graph.Store) error { return b.Load(context.Background(), n, m, 1) }, &Program{Net: n, Plan: plan})
	return err
}

// overwrite writes other bytes of the same length into the second half of a file, in place.
func overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, len(data)/2), int64(len(data)-len(data)/2))
	return errors.Join(err, f.Close())
}
