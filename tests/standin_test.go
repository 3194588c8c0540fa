package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// scripts/standin.py makes a base model that has learnt: its held-out loss falls, the same steps give the same bytes, and the
// hash it prints is the one that the program writes down of a run on it. TRAINER_PYTHON names a Python with torch.
func TestStandIn(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import torch, transformers, tokenizers").Run(); err != nil {
		t.Skipf("%s has no torch, transformers and tokenizers; TRAINER_PYTHON names one that has", python)
	}
	dir := t.TempDir()
	build := func(name string) (digest string) {
		t.Helper()
		cmd := exec.Command(python, "scripts/standin.py", "--shape", "tiny", "--tokenizer", golden.StoriesDir(t), "--steps", "24", "--batch", "2",
			"--data", "README.md", "--data", "docs/DATA.md", "--device", "cpu", "--out", filepath.Join(dir, name))
		cmd.Dir = golden.Root(t)
		cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		m := regexp.MustCompile(`(?m)^base_weights_sha256 ([0-9a-f]{64})$`).FindSubmatch(out)
		if m == nil {
			t.Fatalf("no hash: %s", out)
		}
		return string(m[1])
	}
	digest := build("base")
	if again := build("again"); again != digest {
		t.Errorf("the same steps gave %s, then %s", digest, again)
	}

	var said struct {
		Before float64 `json:"held_out_loss_before"`
		After  float64 `json:"held_out_loss"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "base", "standin.json"))
	if err != nil || json.Unmarshal(data, &said) != nil {
		t.Fatalf("standin.json: %v", err)
	}
	if said.After > said.Before-0.5 {
		t.Errorf("held-out loss %.3f, then %.3f: nothing was learnt", said.Before, said.After)
	}

	mustRun(t, dir, "train", "--config", "cpu_stories_quick", "--set", "base_model=./base", "--set", "training.max_steps=1",
		"--set", "expect.loss_decrease=0", "--set", "output_dir=run")
	var manifest struct {
		Base string `json:"base_weights_sha256"`
	}
	if data, err = os.ReadFile(filepath.Join(dir, "run", "run_manifest.json")); err != nil || json.Unmarshal(data, &manifest) != nil {
		t.Fatalf("run_manifest.json: %v", err)
	}
	if manifest.Base != digest {
		t.Errorf("the manifest names the base %s, the script %s", manifest.Base, digest)
	}
}
