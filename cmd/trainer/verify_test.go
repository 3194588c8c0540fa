package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train"
)

func TestVerifyCommand(t *testing.T) {
	dir := t.TempDir()
	if code, _, errOut := trainer(t, dir, nil, "", append([]string{"train", "-q", "--set", "output_dir=run"}, small...)...); code != 0 {
		t.Fatal(errOut)
	}
	before, err := os.ReadDir(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(dir, "run", train.ManifestFile)
	whole, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	check := func(code int, out string, args ...string) {
		t.Helper()
		got, text, errOut := trainer(t, dir, []string{"TMPDIR=" + dir}, "", append([]string{"verify"}, args...)...)
		if got != code || !strings.Contains(text+errOut, out) {
			t.Errorf("verify %v: exit code %d, want %d with %q:\n%s%s", args, got, code, out, text, errOut)
		}
	}
	check(0, "steps    3 of 3 replayed\nrows     equal, bit for bit\nlosses   equal, bit for bit\nmade by  the same program", "run")
	check(0, "steps    2 of 3 replayed", "run/", "--steps", "2", "--workers", "1")
	check(0, `"equal": true`, "run", "--json")
	if after, err := os.ReadDir(filepath.Join(dir, "run")); err != nil || len(after) != len(before) {
		t.Errorf("the run's folder held %v, now %v (%v)", before, after, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "trainer-verify-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	var m train.Manifest
	if err := json.Unmarshal(whole, &m); err != nil {
		t.Fatal(err)
	}
	m.Evidence[1].Losses, m.Software.Driver = "0", "570.0"
	if err := m.Write(filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	check(1, "steps    2 of 3 replayed\nrows     equal, bit for bit\nlosses   DIFFER, first at step 2\ndiffers  software.driver: , was 570.0\n", "run")
	check(1, `"different_at": 2`, "run", "--json")

	check(2, "verify takes one argument, the output folder of a run; got 0")
	check(2, "nowhere: not a folder; verify takes the output folder of a run", "nowhere")
	check(2, "--steps 0: at least one", "run", "--steps", "0")
	if err := os.WriteFile(manifest, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	check(2, "run: read run_manifest.json: line 1, column 2", "run")
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	check(2, "run holds no run_manifest.json: a run writes it with its last step; finish it first (--resume auto)", "run")
}
