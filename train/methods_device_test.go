//go:build gpu

package train

import (
	"bytes"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
)

// TestGPUMethodsFollowCPU trains each adapter method in fp32 beside the CPU, in bf16, and stopped and resumed.
func TestGPUMethodsFollowCPU(t *testing.T) {
	gputest.Need(t)
	for _, name := range append(slices.Sorted(maps.Keys(furtherMethods)), "dora") {
		for _, method := range []string{name, "q" + name} {
			for _, precision := range []string{"fp32", "bf16"} {
				t.Run(method+" "+precision, func(t *testing.T) {
					cpu := testSpec(t, 8)
					cpu.Device, cpu.Training.Precision, cpu.Adapter = "cpu", "fp32", method
					if method == name {
						cpu.Quantization = nil
					}
					if set := furtherMethods[name]; set != nil {
						cpu.LoRA, cpu.Training.LearningRate = DefaultSpec().LoRA, 5e-3
						set(&cpu.Sections)
						cpu.MiSS.Dropout = 0 // masks on a GPU are others
					}
					on := cpu
					on.Device, on.OutputDir, on.Training.Precision = "cuda",
						filepath.Join(t.TempDir(), "gpu"), precision
					compareDevices(t, cpu, on, map[string]float64{"fp32": 0.002, "bf16": 0.02}[precision])
				})
			}
		}
	}
}

// compareDevices compares the losses of a run on the CPU with those of a run on a GPU, and the adapter of the latter
// with that of a resumed one.
func compareDevices(t *testing.T, cpu, on Spec, limit float64) {
	t.Helper()
	want, got := mustStart(t, cpu, Env{}), mustStart(t, on, Env{})
	sum := 0.0
	for i := range want.Losses {
		sum += math.Abs(got.Losses[i]-want.Losses[i]) / float64(len(want.Losses))
	}
	t.Logf("mean difference %.3g; losses %.4f to %.4f", sum, got.FirstLoss, got.LastLoss)
	if !(sum < limit) {
		t.Errorf("losses differ by %.3g in the mean, limit %v: GPU %v, CPU %v", sum, limit, got.Losses, want.Losses)
	}
	parts := on
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(5)
	mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, Env{})
	first := golden.ReadFile(t, on.OutputDir, adapter.WeightsFile)
	if !bytes.Equal(first, golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
		t.Error("the resumed run trains another adapter")
	}
}
