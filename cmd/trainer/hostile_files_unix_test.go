//go:build unix

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// hostileRun is a configuration of two steps on an embedded model.
const hostileRun = `base_model: embedded:stories260K
adapter: lora
lora: {r: 4}
dataset: {path: embedded:gsm8k_300.jsonl, format: completion, max_length: 64}
training: {max_steps: 2, report_to: prometheus}
output_dir: r
`

// TestFilesOfOthersStay: no key or flag by which a command writes a file replaces one that the program did not write,
// or anything that is no regular file. Each is refused as a configuration or command line that can't be right.
func TestFilesOfOthersStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(in("c.yaml"), []byte(hostileRun), 0o644), os.WriteFile(in("precious.prom"),
		[]byte("precious"), 0o644),
		os.WriteFile(in("precious.html"), []byte("precious"), 0o644), os.WriteFile(in("precious.json"),
			[]byte("precious"), 0o644),
		os.Symlink("precious.prom", in("link.prom")), os.Symlink(os.DevNull, in("null.prom")),
		syscall.Mkfifo(in("pipe.prom"), 0o644),
		os.Symlink("precious.html", in("link.html")), syscall.Mkfifo(in("pipe.json"), 0o644),
		os.Symlink("precious.json", in("link.json")),
		os.Mkdir(in("folder.prom"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := trainer(t, dir, nil, "", "train", "c.yaml", "-q", "--set", "training.report_to=[]", "--set",
		"output_dir=done"); code != 0 {
		t.Fatal(errOut)
	}
	adapter, err := os.ReadFile(in("done/adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	metrics := func(path string) []string {
		return []string{"train", "c.yaml", "-q", "--set", "tracking.metrics_file=" + path}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{metrics("precious.txt"), "must end in .prom"},
		{metrics("precious.prom"), "is not a file of metrics that this program wrote"},
		{metrics("link.prom"), "is a symbolic link"},
		{metrics("null.prom"), "is a symbolic link"},
		{metrics("pipe.prom"), "is a named pipe (FIFO)"},
		{metrics("folder.prom"), "is a folder"},
		{metrics(os.DevNull), "must end in .prom"},
		{metrics("r/metrics.jsonl"), "must end in .prom"},
		{metrics("done/adapter_model.safetensors"), "must end in .prom"},
		{[]string{"report", "done", "--out", "precious.html"}, "did not write"},
		{[]string{"report", "done", "--out", "link.html"}, "is a symbolic link"},
		{[]string{"doctor", "--emit-json", "precious.json"}, "is not doctor's JSON that this program wrote"},
		{[]string{"doctor", "--emit-json", "link.json"}, "is a symbolic link"},
		{[]string{"doctor", "--emit-json", "pipe.json"}, "is a named pipe (FIFO)"},
		{[]string{"doctor", "--emit-json", os.DevNull}, "is a device"},
		{[]string{"doctor", "--refresh-pins", "--fail-on-mismatch", "link.json"}, "is a symbolic link"},
		{[]string{"doctor", "--refresh-pins", "--fail-on-mismatch", "precious.json"}, "it is not replaced"},
		{[]string{"bench", "c.yaml", "--trace", "precious.json"}, "is not a trace that this program wrote"},
		{[]string{"eval", "--task", "arithmetic", "--model", "embedded:stories260K", "--answers", "precious.json"},
			"is not a file of answers"},
		{[]string{"export", "--format", "gguf", "--model", "embedded:stories260K", "--out", "precious.json",
			"--overwrite"}, "is not a GGUF file"},
		{[]string{"inspect", "data", "c.yaml", "--html", "link.html"}, "is a symbolic link"},
	} {
		code, out, errOut := trainer(t, dir, nil, "", c.args...)
		if code != exitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%q: code %d, want 2 and %q: %s%s", c.args, code, c.want, out, errOut)
		}
	}
	for _, name := range []string{"precious.prom", "precious.html", "precious.json"} {
		if text, err := os.ReadFile(in(name)); err != nil || string(text) != "precious" {
			t.Errorf("%s holds %q, %v", name, text, err)
		}
	}
	if now, err := os.ReadFile(in("done/adapter_model.safetensors")); err != nil || string(now) != string(adapter) {
		t.Errorf("the adapter changed: %v", err)
	}
	if _, err := os.Stat(in("r")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused run made its folder: %v", err)
	}
	for range 2 { // the second run replaces the metrics of the first
		if err := os.RemoveAll(in("r")); err != nil {
			t.Fatal(err)
		}
		if code, _, errOut := trainer(t, dir, nil, "", metrics("own.prom")...); code != 0 {
			t.Fatal(errOut)
		}
	}
}

// TestLinksInARunsFolder: what stands in a run's folder under the names of its files is not written through, and said
// before the first step.
func TestLinksInARunsFolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".lock", "adapter_model.safetensors", "metrics.jsonl", "config.yaml",
		"run_manifest.json"} {
		dir := t.TempDir()
		in := func(name string) string { return filepath.Join(dir, name) }
		if err := errors.Join(os.WriteFile(in("c.yaml"), []byte(hostileRun), 0o644), os.WriteFile(in("precious"),
			[]byte("precious"), 0o644),
			os.Mkdir(in("r"), 0o755), os.Symlink("../precious", in("r/"+name))); err != nil {
			t.Fatal(err)
		}
		for _, resume := range []string{"", "auto"} {
			code, _, errOut := trainer(t, dir, nil, "", "train", "c.yaml", "--resume", resume)
			if code == 0 || strings.Contains(errOut, "step 1/") {
				t.Errorf("%s, resume %q: code %d: %s", name, resume, code, errOut)
			}
		}
		if text, err := os.ReadFile(in("precious")); err != nil || string(text) != "precious" {
			t.Errorf("%s: its target holds %q, %v", name, text, err)
		}
	}
}
