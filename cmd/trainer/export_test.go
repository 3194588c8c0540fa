package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/export/gguf"
)

// TestExport: the command as a user calls it, its result, and the exit codes of what can't be.
func TestExport(t *testing.T) {
	dir := t.TempDir()
	model := []string{"export", "--model", "embedded:stories260K"}
	code, out, errOut := trainer(t, dir, nil, "", append(model, "--format", "gguf", "--dtype", "q8_0",
		"--out", "m.gguf")...)
	if code != 0 || !strings.HasPrefix(out, "m.gguf: embedded:stories260K as gguf, 47 tensors, ") ||
		!strings.Contains(out, "read back and compared\n") {
		t.Fatalf("exit code %d: %s%s", code, out, errOut)
	}
	f, err := gguf.Open(filepath.Join(dir, "m.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	code, out, errOut = trainer(t, dir, nil, "", append(model, "--format", "ollama", "--out", "folder", "--json")...)
	var report export.Report
	if code != 0 || json.Unmarshal([]byte(out), &report) != nil || len(report.Files) != 2 || len(report.Notes) != 1 ||
		report.DType != "f16" {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "folder", "Modelfile")); err != nil ||
		string(text) != "FROM ./model.gguf\nPARAMETER num_ctx 512\n" {
		t.Errorf("%q, %v", text, err)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, `trainer: name the format: --format gguf|gguf-lora|mlx|ollama|peft|vllm; trainer export --help ` +
			`says what each is for`, model},
		{exitUsage, `trainer: --dtype "int4": gguf takes f16, bf16, f32, q8_0, q4_0, q4_k_m`, append(model, "--format",
			"gguf", "--out", "n", "--dtype", "int4")},
		{exitUsage, "trainer: --adapter none: no adapter folder in PEFT's format", append(model, "--format", "gguf",
			"--out", "n", "--adapter", "none")},
		{exitUnfit, "trainer: ", []string{"export", "--format", "gguf", "--model", "./none", "--out", "n"}},
		{exitFailed, "trainer: export embedded:stories260K as gguf to m.gguf: it is there already; --overwrite " +
			"replaces a file", append(model, "--format", "gguf", "--out", "m.gguf")},
		{exitFailed, "trainer: export embedded:stories260K as ollama to folder: it is there already; --overwrite " +
			"replaces what it holds by these names",
			append(model, "--format", "ollama", "--out", "folder")},
		{exitDone, "", append(model, "--format", "gguf", "--out", "m.gguf", "--overwrite")},
	} {
		if code, _, errOut := trainer(t, dir, nil, "", c.args...); code != c.code ||
			!strings.HasPrefix(errOut, c.want) {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, errOut)
		}
	}
}
