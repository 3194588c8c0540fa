//go:build gpu

package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/tier"
)

// TestTierOnGPU: the quick tier on SmolLM2-135M, whose folder TRAINER_SMOLLM2 names.
func TestTierOnGPU(t *testing.T) {
	needGPU(t)
	base := os.Getenv("TRAINER_SMOLLM2")
	if base == "" {
		if os.Getenv("TRAINER_GPU") == "require" {
			t.Fatal("TRAINER_GPU=require: TRAINER_SMOLLM2 names no folder of SmolLM2-135M")
		}
		t.Skip("TRAINER_SMOLLM2 names no folder of SmolLM2-135M")
	}
	dir := t.TempDir()
	cmd := exec.Command(gpuProgram(t), "tier", "quick", "--base", base, "--check-vram", "--report", filepath.Join(dir, "report"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1")
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	t.Logf("%s", text.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{tier.ReportJSON, tier.ReportMarkdown, tier.ReportHTML} {
		if _, err := os.Stat(filepath.Join(dir, "report", name)); err != nil {
			t.Error(err)
		}
	}
}
