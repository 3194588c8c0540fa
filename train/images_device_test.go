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
	models := pictureModels(t)
	models["Mistral 3"] = golden.Mistral3Images(t)
	for name, model := range models {
		for precision, limit := range map[string]float64{"fp32": 0.002, "bf16": 0.05, "fp16": 0.05} {
			t.Run(name+" "+precision, func(t *testing.T) {
				cpu := pictureSpec(t, model, t.TempDir(), 12)
				cpu.Device, cpu.Training.LearningRate, cpu.Training.EvalSteps = "cpu", 1e-3, 6
				on := cpu
				on.Device, on.Training.Precision, on.OutputDir = "cuda", precision, filepath.Join(t.TempDir(), "gpu")
				compareDevices(t, cpu, on, limit)
			})
		}
	}
}

// TestGPUImagesLearn trains on pictures on a GPU: the held-out ones are named right there, and on the CPU.
func TestGPUImagesLearn(t *testing.T) {
	gputest.Need(t)
	for name, model := range pictureModels(t) {
		dir := t.TempDir()
		s := pictureSpec(t, model, dir, 120)
		s.Device = "cuda"
		mustStart(t, s, Env{})
		for _, device := range []string{"cuda", "cpu"} {
			right, chosen := rightAnswers(t, device, name, model, s.OutputDir, s.Dataset.ValPath)
			t.Logf("%s on %s: of the held-out pictures %.2f are named right, %.2f chosen", name, device, right, chosen)
			if right < 0.9 || chosen < 0.9 {
				t.Errorf("%s on %s: right answers %.2f, %.2f chosen", name, device, right, chosen)
			}
		}
	}
}
