//go:build gpu

package train

import (
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
)

// TestGPUImagesFollowCPU: training on pictures has the CPU's losses, in fp32 and in 16 bits, and resumes to the same
// bytes.
func TestGPUImagesFollowCPU(t *testing.T) {
	gputest.Need(t)
	for precision, limit := range map[string]float64{"fp32": 0.002, "bf16": 0.05, "fp16": 0.05} {
		t.Run(precision, func(t *testing.T) {
			cpu, _ := pictureSpec(t, t.TempDir(), 12)
			cpu.Training.LearningRate, cpu.Training.EvalSteps = 1e-3, 6
			on := cpu
			on.Device, on.Training.Precision, on.OutputDir = "cuda", precision, filepath.Join(t.TempDir(), "gpu")
			compareDevices(t, cpu, on, limit)
		})
	}
}

// TestGPUImagesLearn trains on pictures on a GPU: the held-out ones are named right there, and on the CPU.
func TestGPUImagesLearn(t *testing.T) {
	gputest.Need(t)
	dir := t.TempDir()
	s, answers := pictureSpec(t, dir, 120)
	s.Device = "cuda"
	mustStart(t, s, Env{})
	for _, device := range []string{"cuda", "cpu"} {
		right := rightAnswers(t, device, golden.Idefics3(t), s.OutputDir, dir, "val", answers)
		t.Logf("%s: %d of %d held-out pictures are named right", device, right, len(answers))
		if right < len(answers)*9/10 {
			t.Errorf("%s: %d of %d held-out pictures are named right", device, right, len(answers))
		}
	}
}
