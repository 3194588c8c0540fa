package main

import (
	"strings"
	"testing"
)

// TestPlanForAGPU: every build plans for GPUs that are not here; the numbers are those of TestPlanNeedsNoDevice's kind,
// and init takes the card too.
func TestPlanForAGPU(t *testing.T) {
	dir := t.TempDir()
	code, out, errOut := trainer(t, dir, nil, "", "plan", "cpu_stories_quick", "--gpu", "4090")
	if code != 0 || !strings.Contains(out, " on NVIDIA GeForce RTX 4090, ") ||
		!strings.Contains(out, "precision bf16 (auto)") || !strings.Contains(out, "adapter in bf16") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	if code, out, errOut := trainer(t, dir, nil, "", "plan", "cpu_stories_quick", "--gpu", "7.5"); code != exitUsage ||
		!strings.Contains(errOut, "--gpu: ") {
		t.Errorf("a card without kernels: exit code %d\n%s%s", code, out, errOut)
	}
}
