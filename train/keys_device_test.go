//go:build gpu

package train

import (
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/internal/gputest"
)

// TestGPUKeysFollowCPU trains rows of tokens, biases, and LoRA on embeddings and head, in fp32 beside the CPU, in bf16,
// and stopped and resumed.
func TestGPUKeysFollowCPU(t *testing.T) {
	gputest.Need(t)
	specs := map[string]Spec{}
	for _, c := range keysCases {
		specs[c.name] = c.spec(t, 8)
	}
	for _, c := range tokensCases {
		specs["tokens, "+c.name] = c.spec(t, 8)
	}
	for name, cpu := range specs {
		for precision, limit := range map[string]float64{"fp32": 0.002, "bf16": 0.02} {
			t.Run(name+" "+precision, func(t *testing.T) {
				cpu.Device, cpu.Training.Precision = "cpu", "fp32"
				cpu.OutputDir = filepath.Join(t.TempDir(), "cpu")
				on := cpu
				on.Device, on.OutputDir, on.Training.Precision = "cuda", filepath.Join(t.TempDir(), "gpu"), precision
				compareDevices(t, cpu, on, limit)
			})
		}
	}
}
