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
		on, err := session.MachineFor(chipOf(t, "h100"), s.Training.Numbers(), session.Env{})
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

// TestGPUBudgetsAreCapturedOnce: after the first step the device's free memory stays the same, whichever budgets the
// steps take; the captured graphs of more budgets take a little of the driver's share.
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
		t.Logf("pad_to %s: %d bytes held, median step %.3f ms, %s from start to end", pad, r.HeldBytes,
			median(w.times), r.Duration)
	}
	more := used[dataset.PadNone] - used[dataset.PadMaxLength]
	t.Logf("the graphs of all budgets take %.1f MiB more than one", float64(more)/(1<<20))
	if limit := int64(1 << 30); more > limit {
		t.Errorf("the driver holds %d bytes more for the budgets, at most %d", more, limit)
	}
}

// TestChipLeavesMemoryForGraphs: what the plan and the captured graphs of all budgets take fits the card, however
// little it leaves: with fewer budgets, or in a leaner layout.
func TestChipLeavesMemoryForGraphs(t *testing.T) {
	chip := chipOf(t, "h100")
	planned := func(memory int64) (p *prepared, graphs, free int64) {
		chip.Memory = memory
		s := unevenSpec(t, 200, "cuda")
		on, err := session.MachineFor(chip, s.Training.Numbers(), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if p, err = prepareOn(t.Context(), s, Env{}, on); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() }) //nolint:errcheck // read only
		calls := int64(0)
		for _, n := range p.found.Step.train.Plan.Calls() {
			calls += int64(n)
		}
		if free, _, err = p.On.FreeMemory(); err != nil {
			t.Fatal(err)
		}
		return p, int64(len(p.found.Step.smaller)) * calls * p.On.Capabilities().CapturedCall, free
	}
	p, graphs, free := planned(80 << 30)
	all, need := len(p.loader.Shape().Budgets), p.found.Need.Total()
	least := 80<<30 - (free-need)*50/49 // the smallest card for the layout: one part in 50 is the driver's
	fewer := 0
	for i := range int64(6) {
		p, took, free := planned(least + graphs*i/5)
		if n := p.found.Need.Total() + took; n > free {
			t.Errorf("%d MiB more: plan and graphs of budgets %v take %d bytes, %d are free", graphs*i/5>>20,
				p.loader.Shape().Budgets, n, free)
		}
		if len(p.loader.Shape().Budgets) < all || p.found.Need.Total() < need {
			fewer++
		}
	}
	if all < 3 || fewer == 0 {
		t.Errorf("%d budgets on a large card, never fewer on a small one", all)
	}
}
