package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/replay"
)

func TestVerifyCommand(t *testing.T) {
	dir := t.TempDir()
	if code, _, errOut := inProcess(t, dir, append([]string{"train", "-q", "--set", "output_dir=run", "--set",
		"training.logging_steps=1"}, small...)...); code != 0 {
		t.Fatal(errOut)
	}
	before, err := os.ReadDir(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(dir, "run", replay.ManifestFile)
	whole, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	check := func(code int, out string, args ...string) {
		t.Helper()
		got, text, errOut := inProcess(t, dir, append([]string{"verify"}, args...)...)
		if got != code || !strings.Contains(text+errOut, out) {
			t.Errorf("verify %v: exit code %d, want %d with %q:\n%s%s", args, got, code, out, text, errOut)
		}
	}
	check(0, "steps    3 of 3 replayed\nrows     equal, bit for bit\nlosses   equal, bit for bit\nmetrics  all 3 "+
		"losses of metrics.jsonl equal the manifest\n"+
		"files    7 files of the adapter and the last checkpoint have the manifest's SHA-256\nadapter  the replay "+
		"wrote the run's adapter, byte for byte\nmade by  the same program", "run")
	checkFilesChanged(t, filepath.Join(dir, "run"), check)
	check(0, "steps    2 of 3 replayed", "run/", "--steps", "2", "--workers", "1")
	check(0, `"equal": true`, "run", "--json")
	if after, err := os.ReadDir(filepath.Join(dir, "run")); err != nil || len(after) != len(before) {
		t.Errorf("the run's folder held %v, now %v (%v)", before, after, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "trainer-verify-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	metrics := filepath.Join(dir, "run", train.MetricsFile)
	lines, err := os.ReadFile(metrics)
	if err != nil {
		t.Fatal(err)
	}
	for text, c := range map[string]struct {
		code int
		says string
	}{
		regexp.MustCompile(`("step":3,.*?"loss":)[0-9.]+`).ReplaceAllString(string(lines), "${1}0.5"): {1,
			"losses   equal, bit for bit\nmetrics  DIFFER from the manifest's losses, first at step 3"},
		regexp.MustCompile(`"step":2,`).ReplaceAllString(string(lines), `"step":7,`): {0,
			"metrics  not compared: metrics.jsonl has no line for each step"},
	} {
		if text == string(lines) {
			t.Fatal("nothing was changed")
		}
		if err := os.WriteFile(metrics, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		check(c.code, c.says, "run")
	}
	if err := os.WriteFile(metrics, lines, 0o644); err != nil {
		t.Fatal(err)
	}

	var m replay.Manifest
	if err := json.Unmarshal(whole, &m); err != nil {
		t.Fatal(err)
	}
	m.Evidence[1].Losses, m.Software.Driver = "0", "570.0"
	if err := m.Write(filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	check(1, "steps    2 of 3 replayed\nrows     equal, bit for bit\nlosses   DIFFER, first at step 2\nmetrics  "+
		"DIFFER from the manifest's losses, first at step 2: metrics.jsonl was changed after the run\n"+
		"files    7 files of the adapter and the last checkpoint have the manifest's SHA-256\ndiffers  "+
		"software.driver: , was 570.0\n", "run")
	check(1, `"different_at": 2`, "run", "--json")

	check(2, "verify takes one argument, the output folder of a run; got 0")
	check(2, "no run: stat nowhere: no such file or directory; verify takes the output folder of a run", "nowhere")
	check(2, "--steps 0: at least one", "run", "--steps", "0")
	if err := os.WriteFile(manifest, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	check(2, "run: read run_manifest.json: line 1, column 2", "run")
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	check(2, "run holds no run_manifest.json: a run writes it with its last step; finish it first (--resume auto)",
		"run")
}

// checkFilesChanged: a byte that changed in a file that the run left is named, and so is a file that is gone.
func checkFilesChanged(t *testing.T, run string, check func(code int, out string, args ...string)) {
	t.Helper()
	for name, want := range map[string]struct {
		changed, gone string
		code          int // when it is gone
	}{
		"adapter_model.safetensors": {"adapter_model.safetensors was changed after the run: SHA-256 ",
			"adapter_model.safetensors is gone\n", 1},
		"adapter_config.json": {"adapter_config.json was changed after the run: SHA-256 ",
			"adapter_config.json is gone\n", 1},
		"tokenizer.json": {"tokenizer.json was changed after the run: SHA-256 ",
			"tokenizer.json is gone\n", 1},
		"checkpoint-3/optimizer.safetensors": {"checkpoint-3/optimizer.safetensors was changed after the run: SHA-256 ",
			"checkpoint-3/optimizer.safetensors is gone\n", 1},
	} {
		file := filepath.Join(run, filepath.FromSlash(name))
		was, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		changed := slices.Clone(was)
		changed[len(changed)-1] ^= 1
		if err := os.WriteFile(file, changed, 0o644); err != nil {
			t.Fatal(err)
		}
		check(1, "files    DIFFER from the manifest: "+want.changed, "run", "--steps", "1")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		check(want.code, "files    DIFFER from the manifest: "+want.gone, "run", "--steps", "1")
		if err := os.WriteFile(file, was, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	saved := filepath.Join(run, "checkpoint-3")
	if err := os.Rename(saved, saved+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	check(0, "files    5 files of the adapter and the last checkpoint have the manifest's SHA-256\nfiles    not "+
		"compared, their folder is gone: checkpoint-3/adapter_model.safetensors, checkpoint-3/optimizer.safetensors\n",
		"run", "--steps", "1")
	if err := os.Rename(saved+"-elsewhere", saved); err != nil {
		t.Fatal(err)
	}
	m, err := replay.ReadManifest(run)
	if err != nil {
		t.Fatal(err)
	}
	files := m.Files
	for sums, want := range map[string]struct {
		code int
		says string
	}{
		"": {0, "files    not compared: the manifest has no hashes of them\n"},
		"../outside": {1,
			`run_manifest.json: files_sha256: "../outside" is no path in the run's folder`},
		"adapter_model.safetensors": {1, "adapter  DIFFERS: the replay wrote another adapter than the run\n"},
	} {
		if m.Files = nil; sums != "" {
			m.Files = map[string]string{sums: "00"}
		}
		if err := m.Write(run); err != nil {
			t.Fatal(err)
		}
		check(want.code, want.says, "run")
	}
	m.Files = files
	if err := m.Write(run); err != nil {
		t.Fatal(err)
	}
}
