//go:build gpu

package train

import (
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/session"
)

// TestChipBudgetsTakeTheMemoryOfTheLargest: of a GPU's plans, on a machine that may have none.
func TestChipBudgetsTakeTheMemoryOfTheLargest(t *testing.T) {
	budgetsTakeTheMemoryOfTheLargest(t, func(s Spec) (*prepared, error) {
		on, err := session.MachineFor(chipOf(t, "h100"), s.Training.Precision, session.Env{})
		if err != nil {
			return nil, err
		}
		s.Device = "cuda"
		return prepareOn(t.Context(), s, Env{}, on)
	})
}

// TestGPUBudgetsTrainAsPaddingDoes: to the rounding of bf16; repeats and resumes are equal byte for byte.
func TestGPUBudgetsTrainAsPaddingDoes(t *testing.T) {
	gputest.Need(t)
	budgetsTrainAsPaddingDoes(t, "cuda", 1e-3, 1e-2)
}

func TestGPURecomputedBudgetsEqualKept(t *testing.T) {
	gputest.Need(t)
	recomputedBudgetsEqualKept(t, "cuda")
}

// TestGPUBudgetsAreCapturedOnce: after the first step the device's free memory stays the same, whichever budgets the steps
// take; the captured graphs of more budgets take a little of the driver's share.
func TestGPUBudgetsAreCapturedOnce(t *testing.T) {
	gputest.Need(t)
	used := map[string]int64{} // beside the plan
	for _, pad := range []string{dataset.PadMaxLength, dataset.PadNone} {
		s := smolLM2Spec(t, 150)
		s.Dataset.MaxLength, s.Training.BatchSize, s.Dataset.PadTo = 512, 2, pad
		w := &watch{t: t, every: 5}
		r := mustStart(t, s, Env{Observers: []Observer{w}})
		for i, f := range w.free {
			if f != w.free[0] {
				t.Errorf("%s, step %d: %d bytes free, after step 1 %d", pad, i*w.every, f, w.free[0])
			}
		}
		used[pad] = -w.free[0] - r.HeldBytes
		t.Logf("pad_to %s: %d bytes held, median step %.3f ms, %s from start to end", pad, r.HeldBytes, median(w.times), r.Duration)
	}
	more := used[dataset.PadNone] - used[dataset.PadMaxLength]
	t.Logf("the graphs of all budgets take %.1f MiB more than one", float64(more)/(1<<20))
	if limit := int64(1 << 30); more > limit {
		t.Errorf("the driver holds %d bytes more for the budgets, at most %d", more, limit)
	}
}
