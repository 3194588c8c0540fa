package tier

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/train"
)

// judgeHeldOut computes the fall of the loss on the validation rows from metrics.jsonl.
func (a *attempt) judgeHeldOut() {
	if a.tier.HeldOut == 0 {
		return
	}
	const name = "the held-out loss falls"
	before, after := a.evaluated(0), a.evaluated(a.tier.Steps)
	if before == nil || after == nil || *before <= 0 {
		a.check(name, false, "%s has no evaluation before the first step or none after the last", train.MetricsFile)
		return
	}
	fall := 1 - *after / *before
	a.check(name, fall >= a.tier.HeldOut, "%.1f%% from %.4f to %.4f, at least %.1f%%", 100*fall, *before, *after, 100*a.tier.HeldOut)
}

// evaluated returns the validation loss after a step; nil = none.
func (a *attempt) evaluated(step int) *float64 {
	i := slices.IndexFunc(a.Evaluations, func(e Evaluation) bool { return e.Step == step })
	if i < 0 {
		return nil
	}
	return &a.Evaluations[i].Loss
}

// Curve is the reference curve that a run was compared with.
type Curve struct {
	Name      string            `json:"name"` // name that expect.reference has
	BaseModel string            `json:"base_model"`
	MadeBy    map[string]string `json:"made_by"`
	Seeds     int               `json:"seeds"`
	Window    int               `json:"window"`  // number of steps that each point averages
	Run       []float64         `json:"run"`     // losses of the run, averaged over the same window
	Mean      []float64         `json:"mean"`    // mean over the seeds
	Allowed   []float64         `json:"allowed"` // allowed distance from the mean
	Outside   int               `json:"steps_outside"`
}

// judgeReference computes the distance from the tier's curve. The run itself compared the curve's subject with its own
// (expect.reference).
func (a *attempt) judgeReference() {
	if a.tier.Reference == "" {
		return
	}
	const name = "the loss stays at the reference"
	i := slices.IndexFunc(a.Run.Expect, func(j train.Judged) bool { return j.Criterion == "reference" && j.Comparison != nil })
	if i < 0 {
		a.skip(name, "the configuration asks for no comparison; the tier's is expect.reference: "+a.tier.Reference)
		return
	}
	if is := a.Run.Expect[i].Comparison.Reference; is != a.tier.Reference {
		a.skip(name, fmt.Sprintf("it was compared with %s, which is not the tier's %s", is, a.tier.Reference))
		return
	}
	r, err := a.Reference(a.tier.Reference)
	if err != nil {
		a.check(name, false, "%v", err)
		return
	}
	var losses []float64
	for _, s := range a.Steps {
		losses = append(losses, s.Loss)
	}
	c := &Curve{Name: a.tier.Reference, BaseModel: plain(r.BaseModel), MadeBy: r.MadeBy, Seeds: len(r.Seeds), Window: r.Window, Run: train.Smooth(losses, r.Window), Mean: r.Loss.Mean}
	allowed := func(b train.Band) float64 { return r.Tolerance.K*b.Spread + r.Tolerance.Floor }
	worst, at := 0.0, 0
	for i, mean := range r.Loss.Mean {
		c.Allowed = append(c.Allowed, allowed(train.Band{Mean: mean, Spread: r.Loss.Spread[i]}))
		if i >= len(c.Run) {
			c.Outside++
			continue
		}
		d := math.Abs(c.Run[i] - mean)
		if d > c.Allowed[i] {
			c.Outside++
		}
		if share := d / c.Allowed[i]; share > worst {
			worst, at = share, i+1
		}
	}
	a.Curve = c
	a.check(name, c.Outside == 0 && len(c.Run) == len(c.Mean), "%d of %d steps outside the band of %d seeds; the furthest, step %d, at %.0f%% of what is allowed", c.Outside, len(c.Mean), c.Seeds, at, 100*worst)
	if r.EvalLoss == nil {
		return
	}
	if e := a.evaluated(a.tier.Steps); e == nil {
		a.check("the held-out loss stays at the reference", false, "there is none after the last step")
	} else {
		a.check("the held-out loss stays at the reference", math.Abs(*e-r.EvalLoss.Mean) <= allowed(*r.EvalLoss), "%.4f, the reference has %.4f, allowed %.4f", *e, r.EvalLoss.Mean, allowed(*r.EvalLoss))
	}
}
