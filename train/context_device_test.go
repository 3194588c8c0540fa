//go:build gpu

package train

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/graph"
)

// TestGPUContextIsOneCard: GPUs that share each row's tokens train and evaluate as one GPU with all of them, to
// rounding: GEMMs of fewer rows may add up in another order. Groups of GPUs are accumulation, and a run repeats, byte
// for byte.
func TestGPUContextIsOneCard(t *testing.T) {
	needGPUs(t, 2)
	there, _ := graph.GPUs()
	for name, c := range map[string]struct {
		loss, norm float64
		edit       func(s *Spec)
	}{
		"fp32":    {2e-5, 2e-5, func(s *Spec) { s.Training.Precision = "fp32" }},
		"dropout": {5e-3, 2e-2, func(s *Spec) { s.LoRA.Dropout = 0.1 }},
		"packed":  {5e-3, 2e-2, func(s *Spec) { s.Dataset.Packing, s.Training.GradientCheckpointing = true, "full" }},
		"sliced": {5e-3, 2e-2, func(s *Spec) {
			s.Training.BaseSharding,
				s.Training.DequantisedWeights = "always", "never"
		}},
		"offload": {5e-3, 2e-2, func(s *Spec) { s.Training.GradientCheckpointing = "offload" }},
		"evaluated": {5e-3, 2e-2, func(s *Spec) {
			s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart = 0.3, 4, true
			s.Training.SamplePrompts, s.Training.SampleMaxTokens = []string{"Once upon a time"}, 8
		}},
	} {
		t.Run(name, func(t *testing.T) {
			one := testSpec(t, 8)
			one.Device, one.Training.GradNormSteps = "cuda", 1
			one.Training.GradientAccumulationSteps, one.Training.BatchSize = 2, 2
			one.Dataset.Path = fewRows(t, one.Dataset.Path, 11)
			c.edit(&one)
			alone := one
			alone.Training.BaseSharding = "auto"
			want := mustStart(t, alone, Env{})
			for _, size := range []int{2, 4} {
				if size > there {
					continue
				}
				what := fmt.Sprintf("%d GPUs share", size)
				s := sharing(t, one, size, 1)
				got := mustStart(t, s, Env{})
				loss, norm, moved := roundings(t, what, one.OutputDir, s.OutputDir, want, got)
				t.Logf("%s: losses differ by %.2g, the first gradients by %.2g, the adapters by %.2g",
					what, loss, norm, moved)
				if want.EvalBefore != nil && math.Abs(*got.EvalBefore / *want.EvalBefore - 1) > c.loss/5 {
					t.Errorf("%s: the evaluation before training is %v, want %v", what,
						*got.EvalBefore, *want.EvalBefore)
				}
				if first := math.Abs(got.Losses[0]/want.Losses[0] - 1); first > c.loss/5 ||
					loss > c.loss || norm > c.norm {
					t.Errorf("%s: losses %v, want %v", what, got.Losses, want.Losses)
				}
				plan, err := PlanRun(context.Background(), s, Env{})
				if err != nil || plan.TotalBytes != got.HeldBytes || plan.Context == nil {
					t.Errorf("%s, and hold %d bytes each; the plan says %d: %v", what,
						got.HeldBytes, plan.TotalBytes, err)
				}
				if 2*size > there {
					continue
				}
				groups := sharing(t, one, size, 2)
				mustStart(t, groups, Env{})
				sameRun(t, what+", in two groups", s.OutputDir, groups.OutputDir)
			}
			again := sharing(t, one, 2, 1)
			mustStart(t, again, Env{})
			first := sharing(t, one, 2, 1)
			mustStart(t, first, Env{})
			sameRun(t, "repeated", first.OutputDir, again.OutputDir)
		})
	}
}
