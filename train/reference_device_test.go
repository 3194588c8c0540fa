//go:build gpu

package train

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/train/objective"
)

// TestGPUReferencesAndTeachers checks runs with a precomputed reference, a teacher beside the student and weighted
// pairs (WPO) on a GPU: in float32 they follow the CPU's run, in bf16 a repeated run and one after an interrupt write
// the same bytes, and memory is as planned.
func TestGPUReferencesAndTeachers(t *testing.T) {
	gputest.Need(t)
	taught := taughtSpec(t, 6)
	for name, s := range map[string]Spec{
		"wpo": func() Spec { s := dpoSpec(t, 6); s.Objectives.DPO.UseWeighting = true; return s }(),
		"wpo, precomputed": func() Spec {
			s := dpoSpec(t, 6)
			s.Objectives.DPO.UseWeighting, s.Objectives.DPO.LDAlpha, s.Training.Precompute = true, 0.5, "yes"
			return s
		}(),
		"dpo, precomputed": func() Spec { s := dpoSpec(t, 6); s.Training.Precompute = "yes"; return s }(),
		"kto, precomputed": func() Spec { s := ktoSpec(t, 6); s.Training.Precompute = "yes"; return s }(),
		"teacher, adapter": taught,
		"teacher, model": taughtBy(t, taught,
			func(c *objective.DistillConfig) { c.Teacher = mergedTeacher(t, taught) }),
		"teacher, jsd warm": taughtBy(t, taught, func(c *objective.DistillConfig) { c.Beta, c.Temperature = 0.25, 2 }),
	} {
		t.Run(name, func(t *testing.T) {
			run := func(device, precision string) Spec {
				one := s
				one.Device, one.Training.Precision, one.Training.LoggingSteps = device, precision, 1
				one.OutputDir = filepath.Join(t.TempDir(), "run")
				return one
			}
			losses := func(s Spec) (all []float64) {
				for _, kind := range [][]string{{"loss", "loss", "grad_norm"}, {"eval_loss", "eval_loss"}} {
					for _, row := range linesWith(t, s.OutputDir, kind[0], kind[1:]...) {
						all = append(all, row...)
					}
				}
				return all
			}
			cpu, gpu := run("cpu", "fp32"), run("cuda", "fp32")
			mustStart(t, cpu, oneWorker)
			mustStart(t, gpu, oneWorker)
			want, got, worst := losses(cpu), losses(gpu), 0.
			for i := range want {
				worst = math.Max(worst, math.Abs(got[i]-want[i])/math.Max(math.Abs(want[i]), 1e-2))
			}
			t.Logf("float32: losses and norms at most %.2g from the CPU's, relatively", worst)
			if !(worst <= 2e-3) || len(got) != len(want) {
				t.Errorf("on the GPU %v, on the CPU %v", got, want)
			}
			whole := run("cuda", "bf16")
			result := mustStart(t, whole, oneWorker)
			plan, err := PlanRun(t.Context(), whole, oneWorker)
			if err != nil {
				t.Fatal(err)
			}
			if plan.TotalBytes != result.HeldBytes {
				t.Errorf("planned %d bytes, held %d", plan.TotalBytes, result.HeldBytes)
			}
			again := run("cuda", "bf16")
			mustStart(t, again, oneWorker)
			sameRun(t, "repeated", whole.OutputDir, again.OutputDir)

			parts := run("cuda", "bf16")
			stop := stopping(3)
			mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
			parts.Training.Resume = "auto"
			mustStart(t, parts, oneWorker)
			sameRun(t, "resumed", whole.OutputDir, parts.OutputDir)
			for i, x := range losses(whole) {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					t.Errorf("number %d in bf16 is %v", i, x)
				}
			}
		})
	}
}

// TestGPUPrecomputedFollowsLive measures how far a run with a precomputed reference is from one that computes it in
// every step: to the last bit where all batches are of one budget, else up to rounding, which grows with the number.
func TestGPUPrecomputedFollowsLive(t *testing.T) {
	gputest.Need(t)
	for _, precision := range []string{"fp32", "bf16"} {
		for _, packed := range []bool{true, false} {
			live := dpoSpec(t, 6)
			live.Device, live.Training.Precision, live.Dataset.Packing = "cuda", precision, packed
			live.Training.LoggingSteps, live.Training.Precompute = 1, "no"
			once := live
			once.Training.Precompute, once.OutputDir = "yes", filepath.Join(t.TempDir(), "once")
			mustStart(t, live, oneWorker)
			mustStart(t, once, oneWorker)
			a := linesWith(t, live.OutputDir, "loss", "loss", "rewards/margins")
			b := linesWith(t, once.OutputDir, "loss", "loss", "rewards/margins")
			worst := 0.
			for i := range a {
				for k := range a[i] {
					worst = math.Max(worst, math.Abs(a[i][k]-b[i][k])/math.Max(1, math.Abs(a[i][k])))
				}
			}
			t.Logf("%s, packed %v: losses and margins at most %.3g apart, relatively above 1", precision, packed, worst)
			if limit := map[string]float64{"fp32": 1e-4, "bf16": 2e-2}[precision]; !(worst <= limit) {
				t.Errorf("%s, packed %v: %v and %v", precision, packed, a, b)
			}
		}
	}
}
