//go:build linux || darwin

package export

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/fulldisk"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
	runlock "github.com/tierlora/tierlora/train/checkpoint"
)

// TestStagingOfOthers: what a killed merge left goes; another that is at work is named and not disturbed.
func TestStagingOfOthers(t *testing.T) {
	above := t.TempDir()
	o := MergeOptions{Model: golden.StoriesDir(t), Adapters: One(trained(t)), Out: filepath.Join(above, "merged"),
		Check: []string{}}
	left := filepath.Join(above, ".partial-merged", "new")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "model-00001-of-00002.safetensors"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	lock, err := runlock.Acquire(filepath.Dir(left))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Merge(context.Background(), o, session.Env{})
	if err == nil || !strings.Contains(err.Error(), "merge into "+o.Out+": process ") || !strings.Contains(err.Error(),
		"is writing it: wait for it to end") {
		t.Errorf("while another merge writes: %v", err)
	}
	if _, err := os.Stat(filepath.Join(left, "model-00001-of-00002.safetensors")); err != nil {
		t.Errorf("its files are gone: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(context.Background(), o, session.Env{}); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, above); len(got) != 1 || got[0] != "merged" {
		t.Errorf("the folder above holds %q", got)
	}
	for _, name := range entries(t, o.Out) {
		if strings.HasPrefix(name, "model-") || strings.HasPrefix(name, ".") {
			t.Errorf("the folder holds %s", name)
		}
	}
}

// TestFilesOfOthers: the same of a file.
func TestFilesOfOthers(t *testing.T) {
	above := t.TempDir()
	o := Options{Format: "gguf", Model: golden.StoriesDir(t), Out: filepath.Join(above, "m.gguf")}
	left := filepath.Join(above, ".partial-m.gguf", "new")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "m.gguf-123"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	lock, err := runlock.Acquire(filepath.Dir(left))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Export(context.Background(), o, session.Env{}); err == nil || !strings.Contains(err.Error(),
		"is writing it: wait for it to end") {
		t.Errorf("while another export writes: %v", err)
	}
	if got := entries(t, left); len(got) != 1 {
		t.Errorf("its folder holds %q", got)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(context.Background(), o, session.Env{}); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, above); len(got) != 1 || got[0] != "m.gguf" {
		t.Errorf("the folder above holds %q", got)
	}
}

// TestMergeFullDisk: a disk without room is named with the bytes that are needed, and nothing is left. A limit on the
// size of files stands for it, in a process of its own.
func TestMergeFullDisk(t *testing.T) {
	if !fulldisk.Apart(t) {
		return
	}
	above, from := t.TempDir(), trained(t)
	limit, _ := fulldisk.Limit(t)
	limit(500_000)
	_, err := Merge(context.Background(), MergeOptions{Model: golden.StoriesDir(t), Adapters: One(from),
		Out: filepath.Join(above, "merged")}, session.Env{})
	var full *atomicfile.FullError
	if !errors.As(err, &full) || full.Needed < 1_000_000 || filepath.Base(full.Path) != "model.safetensors" {
		t.Errorf("%v", err)
	}
	if got := entries(t, above); len(got) != 0 {
		t.Errorf("it left %q", got)
	}
}

// TestKilledOllamaExport: what a killed export for Ollama left is in nobody's way, and the folder has its name when all
// of it is there.
func TestKilledOllamaExport(t *testing.T) {
	above := t.TempDir()
	o := Options{Format: "ollama", Model: golden.StoriesDir(t), Out: filepath.Join(above, "ollama")}
	left := filepath.Join(above, ".partial-ollama", "new")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "model.gguf"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(context.Background(), o, session.Env{}); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, above); len(got) != 1 || got[0] != "ollama" {
		t.Errorf("the folder above holds %q", got)
	}
	if got := strings.Join(entries(t, o.Out), " "); got != "Modelfile model.gguf" {
		t.Errorf("the folder holds %s", got)
	}
	// One that is stopped on its way leaves no folder of its name.
	o.Out = filepath.Join(above, "stopped")
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Export(ctx, o, session.Env{}); err == nil {
		t.Error("a stopped export succeeds")
	}
	if _, err := os.Lstat(o.Out); err == nil {
		t.Error("a stopped export leaves a folder")
	}
	// Replacing keeps what others have put there.
	o.Out, o.Overwrite = filepath.Join(above, "ollama"), true
	if err := os.WriteFile(filepath.Join(o.Out, "notes.txt"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(context.Background(), o, session.Env{}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(entries(t, o.Out), " "); got != "Modelfile model.gguf notes.txt" {
		t.Errorf("the folder holds %s", got)
	}
}
