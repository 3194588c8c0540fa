//go:build linux || darwin

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCacheFileChanges: a cache file that another process cuts off, empties with zeros or overwrites while a run has it
// mapped ends the run with exit code 1 and a sentence, and not with a trace of Go and 2, which means configuration
// here. The run's folder is left so that the run resumes to its end.
func TestCacheFileChanges(t *testing.T) {
	for name, change := range map[string]func(f *os.File, size int64) error{
		"cut":   func(f *os.File, _ int64) error { return f.Truncate(0) },
		"zeros": func(f *os.File, size int64) error { return errors.Join(f.Truncate(0), f.Truncate(size)) },
		"other": func(f *os.File, size int64) error {
			_, err := f.WriteAt(bytes.Repeat([]byte{0x5a}, int(size/2)), 16)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var rows strings.Builder
			for i := range 3000 {
				fmt.Fprintf(&rows, "{\"prompt\":\"row %d\",\"completion\":\"%s\"}\n", i,
					strings.Repeat("once upon a time ", 1+i%12))
			}
			config := `base_model: embedded:stories260K
adapter: qlora
lora: {r: 8, alpha: 16, target_modules: all-linear, dropout: 0.05}
dataset: {path: d.jsonl, format: completion, max_length: 128, val_split: 0.02, cache_dir: c}
training: {max_steps: 100, batch_size: 2, save_steps: 3, save_total_limit: 2, logging_steps: 1, learning_rate: 1e-3}
seed: 3
output_dir: o
`
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "d.jsonl"), []byte(rows.String()), 0o600),
				os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(config), 0o600)); err != nil {
				t.Fatal(err)
			}
			changed := make(chan error, 1)
			go func() {
				for range 3000 {
					if text, err := os.ReadFile(filepath.Join(dir, "o/metrics.jsonl")); err == nil &&
						bytes.Count(text, []byte("\n")) > 7 {
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
				files, err := filepath.Glob(filepath.Join(dir, "c/*.tokens"))
				if err == nil && len(files) != 1 {
					err = fmt.Errorf("cache files: %q", files)
				}
				if err == nil {
					var f *os.File
					var info os.FileInfo
					if f, err = os.OpenFile(files[0], os.O_RDWR, 0); err == nil {
						if info, err = f.Stat(); err == nil {
							err = change(f, info.Size())
						}
						err = errors.Join(err, f.Close())
					}
				}
				changed <- err
			}()
			code, _, errOut := trainer(t, dir, nil, "", "train", "c.yaml")
			if err := <-changed; err != nil {
				t.Fatal(err)
			}
			if code != exitFailed || strings.Contains(errOut, "goroutine ") ||
				!strings.Contains(errOut, "changed while it was in use") &&
					!strings.Contains(errOut, "has become damaged at byte") {
				t.Errorf("exit code %d: %s", code, errOut)
			}
			if code, _, errOut := trainer(t, dir, nil, "", "train", "c.yaml", "-q", "--resume", "auto"); code != 0 {
				t.Errorf("resumed: exit code %d: %s", code, errOut)
			}
		})
	}
}
