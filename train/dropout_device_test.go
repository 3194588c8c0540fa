//go:build gpu

package train

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/gputest"
)

// TestGPUDropoutFollowsCPU trains with dropout: the device draws the CPU's masks, so the losses stay together.
func TestGPUDropoutFollowsCPU(t *testing.T) {
	gputest.Need(t)
	spec := testSpec(t, 20)
	spec.Adapter, spec.Quantization, spec.LoRA.Dropout, spec.LoRA.R, spec.LoRA.Alpha = "lora", nil, 0.3, 16, 64
	curve := func(device string, seed uint64) []float64 {
		s := spec
		s.Device, s.Seed, s.OutputDir = device, seed, filepath.Join(t.TempDir(),
			strings.Join([]string{device, fmt.Sprint(seed)}, "-"))
		return mustStart(t, s, Env{}).Losses
	}
	apart := func(a, b []float64) (sum float64) {
		for i := range a {
			sum += math.Abs(a[i]-b[i]) / float64(len(a))
		}
		return sum
	}
	cpu := curve("cpu", 1)
	same, plain := apart(cpu, curve("cuda", 1)), spec
	plain.LoRA.Dropout, plain.Seed, plain.Device, plain.OutputDir = 0, 1, "cpu", filepath.Join(t.TempDir(), "none")
	without := apart(cpu, mustStart(t, plain, Env{}).Losses)
	t.Logf("mean difference %.4g on the GPU, %.4g without dropout", same, without)
	if !(same < 0.02) || !(without > 2*same) {
		t.Errorf("mean difference %.4g on the GPU, want below 0.02; %.4g without dropout, which must be another curve",
			same, without)
	}
}
