package train

import (
	"context"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/train/optimizer"
)

// TestEveryOptimizerIsPlannedForAGPU, with one rate for all tensors and with rates of their own, in each precision: a
// plan needs no device.
func TestEveryOptimizerIsPlannedForAGPU(t *testing.T) {
	t.Parallel()
	chip, err := graph.FindChip("h100")
	if err != nil {
		t.Fatal(err)
	}
	for name := range optimizer.Optimizers {
		for _, ratio := range []float64{0, 8} {
			for _, precision := range []string{"bf16", "fp16", "fp32"} {
				s := testSpec(t, 2)
				s.Device, s.Training.Optimizer, s.Training.Precision, s.LoRA.LoRAPlusLRRatio = "cuda",
					name, precision, ratio
				if _, err := PlanFor(context.Background(), s, Env{}, chip); err != nil {
					t.Errorf("%s, ratio %v, %s: %v", name, ratio, precision, err)
				}
			}
		}
	}
}
