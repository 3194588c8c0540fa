package tier

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train"
)

// TestCurveIsCounted: a run that leaves the band, up or down, or is not evaluated, fails; one without a comparison is
// skipped.
func TestCurveIsCounted(t *testing.T) {
	const curve = "embedded:curve.json"
	reference := train.Reference{BaseModel: "base", Seeds: []int64{1, 2}, Window: 1, Tolerance: train.Tolerance{K: 2, Floor: 0.1},
		Loss: train.Curve{Mean: []float64{3, 2, 1}, Spread: []float64{0, 0.1, 0.1}}, EvalLoss: &train.Band{Mean: 1.5, Spread: 0.1}}
	compared := func(name string) []train.Judged {
		return []train.Judged{{Criterion: "reference", Met: true, Comparison: &train.Comparison{Reference: name}}}
	}
	evals := []Evaluation{{0, 3}, {3, 1.6}}
	for _, c := range []struct {
		name   string
		losses []float64
		evals  []Evaluation
		expect []train.Judged
		err    error
		status string
		reason string
	}{
		{"inside", []float64{3.05, 1.75, 1.25}, evals, compared(curve), nil, Pass, ""},
		{"learns too little", []float64{3, 2, 1.4}, evals, compared(curve), nil, Fail, "the loss stays at the reference: 1 of 3 steps outside the band of 2 seeds; the furthest, step 3, at 133%"},
		{"learns too much", []float64{3, 1, 0.1}, evals, compared(curve), nil, Fail, "the loss stays at the reference: 2 of 3"},
		{"a step less", []float64{3, 2}, evals, compared(curve), nil, Fail, "the loss stays at the reference: 1 of 3"},
		{"held out too much", []float64{3, 2, 1}, []Evaluation{{0, 3}, {3, 1.1}}, compared(curve), nil, Fail, "the held-out loss stays at the reference: 1.1000, the reference has 1.5000, allowed 0.3000"},
		{"held out too little", []float64{3, 2, 1}, []Evaluation{{0, 3}, {3, 2.9}}, compared(curve), nil, Fail, "the held-out loss falls: 3.3% from 3.0000 to 2.9000, at least 30.0%"},
		{"not evaluated before", []float64{3, 2, 1}, evals[1:], compared(curve), nil, Fail, "the held-out loss falls: metrics.jsonl has no evaluation"},
		{"not evaluated after", []float64{3, 2, 1}, evals[:1], compared(curve), nil, Fail, "the held-out loss falls: metrics.jsonl has no evaluation"},
		{"no comparison", []float64{3, 2, 1}, evals, nil, nil, Skip, "the loss stays at the reference: the configuration asks for no comparison"},
		{"another curve", []float64{3, 2, 1}, evals, compared("mine.json"), nil, Skip, "the loss stays at the reference: it was compared with mine.json"},
		{"a damaged curve", []float64{3, 2, 1}, evals, compared(curve), errors.New("damaged"), Fail, "the loss stays at the reference: damaged"},
	} {
		x := small
		x.Steps, x.HeldOut, x.Reference = 3, 0.3, curve
		r := &runner{Options: Options{Exit: exit, Reference: func(name string) (*train.Reference, error) {
			if name != curve {
				t.Errorf("%s is read", name)
			}
			return &reference, c.err
		}}}
		a := &attempt{runner: r, tier: x, Result: r.result(x)}
		a.Run, a.Evaluations = &train.Result{Expect: c.expect}, c.evals
		for i, l := range c.losses {
			a.Steps = append(a.Steps, Step{Step: i + 1, Loss: l})
		}
		a.judgeHeldOut()
		a.judgeReference()
		if a.Status != c.status || !strings.HasPrefix(a.Reason, c.reason) {
			t.Errorf("%s: %s, %q, want %s, %q", c.name, a.Status, a.Reason, c.status, c.reason)
		}
	}
}
