package train

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
)

// TestPlanEstimates: a plan for a GPU known by name says how long the run takes; one for the CPU, for a compute
// capability, or in fp32 does not.
func TestPlanEstimates(t *testing.T) {
	plan := func(name, precision string) PlanReport {
		t.Helper()
		chip, err := graph.FindChip(name)
		if err != nil {
			t.Fatal(err)
		}
		s := quickSpec(t)
		s.Device, s.Training.Precision = "cuda", precision
		r, err := PlanFor(context.Background(), s, Env{}, chip)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	fast, slow := plan("h100", "auto"), plan("4060", "auto")
	for _, r := range []PlanReport{fast, slow} {
		e := r.Estimate
		if e == nil {
			t.Fatalf("the plan for %s has no estimate", r.Device)
		}
		if want := e.StepSeconds * float64(r.Steps); e.StepSeconds <= 0 || math.Abs(e.RunSeconds-want) > 1e-9*want ||
			math.Abs(e.CardHours*3600-want) > 1e-9*want || e.TokensPerSecond <= 0 {
			t.Errorf("%s: %+v for %d steps", r.Device, *e, r.Steps)
		}
	}
	if !fast.Estimate.Compared || slow.Estimate.Compared || fast.Estimate.StepSeconds > slow.Estimate.StepSeconds {
		t.Errorf("h100 %+v, 4060 %+v", *fast.Estimate, *slow.Estimate)
	}
	for _, c := range []struct{ r PlanReport }{{plan("9.0", "auto")}, {plan("h100", "fp32")}, {plan("h100", "tf32")}} {
		if c.r.Estimate != nil {
			t.Errorf("the plan for %s in %s has an estimate: %+v", c.r.Device, c.r.Precision, *c.r.Estimate)
		}
	}
	if text := slow.String(); !strings.Contains(text, "no run on it was compared") {
		t.Errorf("the plan does not say where its estimate is from:\n%s", text)
	}
	e := PlanEstimate{CardHours: 2}
	if got, want := e.Price(2.5), "estimated cost: 5.00, for 2.00 card-hours at 2.5 each"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for s, want := range map[float64]string{0.0452: "45.2 ms", 1.5: "1.5 s", 600: "10 min", 9000: "2.5 h"} {
		if got := durationText(s); got != want {
			t.Errorf("%g s is %q, want %q", s, got, want)
		}
	}
}
