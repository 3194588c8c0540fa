//go:build unix

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/fulldisk"
)

// A named pipe where a file is expected is refused; nobody waits for it.
func TestNamedPipes(t *testing.T) {
	dir := t.TempDir()
	pipe := func(path string) {
		t.Helper()
		os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755) //nolint:errcheck // the next line tells
		if err := syscall.Mkfifo(filepath.Join(dir, path), 0o644); err != nil {
			t.Skip("no named pipes: ", err)
		}
	}
	pipe("run.yaml")
	pipe("text")
	adapter, model, checkpoint := "adapter/adapter_config.json", "model/config.json", "out/checkpoint-1/checkpoint.json"
	pipe(model)
	pipe(adapter)
	pipe(checkpoint)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"run.yaml", []string{"validate", "run.yaml"}},
		{"text", []string{"inspect", "tokens", "--tokenizer", "embedded:stories260K", "--text-file", "text"}},
		{"text", []string{"inspect", "template", "--file", "text", "--conversations", "text"}},
		{model, []string{"generate", "--model", "./model", "--prompt", "x"}},
		{model, []string{"inspect", "model", "./model"}},
		{model, []string{"inspect", "tokens", "--tokenizer", "./model", "--text-file", "-"}},
		{adapter, []string{"eval", "--config", "cpu_stories_quick", "--adapter", "adapter"}},
		{adapter, []string{"train", "--config", "cpu_stories_quick", "--set", "lora.init_from=adapter"}},
		{checkpoint, []string{"train", "--config", "cpu_stories_quick", "--set", "output_dir=out", "--resume",
			"out/checkpoint-1"}},
	} {
		name, args := c.name, c.args
		cmd := program(dir, args...)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() }) //nolint:errcheck // Wait tells
		cmd.Wait()                                                            //nolint:errcheck // the exit code tells
		late.Stop()
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(errOut.String(), name+
			" is a named pipe (FIFO), want a regular file") {
			t.Errorf("%v: exit code %d, %s", args, code, errOut.String())
		}
	}
}

// TestNoHalfConfiguration: a configuration that there is no room for leaves no file, whose name would be taken then.
func TestNoHalfConfiguration(t *testing.T) {
	if !fulldisk.Apart(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "run.yaml")
	limit, free := fulldisk.Limit(t)
	limit(8)
	err := writeNew(path, []byte("base_model: x\n"))
	free()
	var full *atomicfile.FullError
	if !errors.As(err, &full) || full.Path != path {
		t.Errorf("%v, want that there is no room", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half a file is left: %v", err)
	}
}
