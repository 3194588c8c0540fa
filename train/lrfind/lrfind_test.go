package lrfind

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// curveOf feeds losses by rate to a test until it ends. The batches differ by noise, which training does not change.
func curveOf(t *testing.T, o Options, before float64, loss func(rate float64) float64) Report {
	t.Helper()
	noise := make([]float64, o.Steps)
	for i := range noise {
		noise[i] = before * (1 + 0.5*math.Sin(float64(7*i)))
	}
	c, err := NewCurve(o, noise)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; c.Add(loss(c.Rate()) + noise[i] - before); i++ {
	}
	return c.Report()
}

// TestSuggestion: losses of known shapes give the suggestions that the rule says, and none where it says none.
func TestSuggestion(t *testing.T) {
	below := func(end float64, above float64) func(float64) float64 {
		return func(r float64) float64 {
			if r > end {
				return above
			}
			return 3 - (math.Log10(r)+6)/10
		}
	}
	for name, c := range map[string]struct {
		before     float64
		loss       func(rate float64) float64
		low, high  float64
		ended, why string
		points     int
	}{
		"a valley": {4, func(r float64) float64 { return 2 + math.Pow(math.Log10(r)+2, 2)/8 }, 1e-3, 3e-3,
			"all 100 steps were made", "a tenth of the rate", 100},
		"a flat line": {2, func(float64) float64 { return 2 }, 0, 0, "all 100 steps were made",
			"none: the smoothed loss never fell by 1% of ", 100},
		"falling to the end": {3, below(1, 0), 0, 0, "all 100 steps were made",
			"none: the loss still falls at 1.00e-01", 100},
		"a divergence": {3, below(1e-2, 20), 9e-4, 1.1e-3, "the smoothed loss was 1.",
			"a tenth of the rate", 82},
		"a loss that is not finite": {3, below(1e-2, math.NaN()), 9e-4, 1.1e-3, "the loss was NaN at a learning",
			"a tenth of the rate", 80},
		"no finite loss": {3, below(0, math.Inf(1)), 0, 0, "the loss was +Inf at", "none: no step", 0},
	} {
		r := curveOf(t, Defaults(), c.before, c.loss)
		if r.Suggested < c.low || r.Suggested > c.high || !strings.HasPrefix(r.Why, c.why) ||
			!strings.HasPrefix(r.Ended, c.ended) || len(r.Points) != c.points {
			t.Errorf("%s: %d points, suggestion %v, ended %q, why %q", name, len(r.Points), r.Suggested, r.Ended, r.Why)
		}
	}
	if _, err := NewCurve(Defaults(), []float64{1, math.NaN()}); !errors.Is(err, ErrNotFinite) ||
		!strings.Contains(err.Error(), "step 2") {
		t.Errorf("a loss before training that is not finite: %v", err)
	}
}

// TestRates: rates rise by one factor from the first to the last, and the average has no bias at its start.
func TestRates(t *testing.T) {
	o := Options{From: 1e-5, To: 1e-2, Steps: 31}
	if a, b := o.Rate(0), o.Rate(30); a != 1e-5 || math.Abs(b-1e-2) > 1e-15 {
		t.Errorf("from %v to %v", a, b)
	}
	for i := range 30 {
		if f := o.Rate(i+1) / o.Rate(i); math.Abs(f-math.Pow(10, 0.1)) > 1e-12 {
			t.Errorf("step %d: factor %v", i, f)
		}
	}
	c, err := NewCurve(o, []float64{3, 1, 2, 4, 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, loss := range c.before {
		c.Add(loss)
	}
	for _, p := range c.points {
		if math.Abs(p.Smoothed-3) > 1e-12 {
			t.Errorf("equal losses of 3 have the average %v", p.Smoothed)
		}
	}
}

// TestOptions: values that make no test are refused by their flag's name.
func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"--from 0:":       {0, 1, 20},
		"--from NaN:":     {math.NaN(), 1, 20},
		"--to 0.1:":       {0.1, 0.1, 20},
		"--to +Inf:":      {0.1, math.Inf(1), 20},
		"--steps 9:":      {0.1, 1, 9},
		"--steps 100000:": {0.1, 1, 100_000},
	} {
		if err := o.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := Defaults().Check(); err != nil {
		t.Error(err)
	}
}
