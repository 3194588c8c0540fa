package train

import (
	"testing"
	"time"
)

// TestStepClock: medians of the steps and of their first and last tenth; what comes between two steps is not timed.
func TestStepClock(t *testing.T) {
	var c stepClock
	if c.times() != nil {
		t.Error("no step has a time")
	}
	for i := range 40 {
		c.ms = append(c.ms, float64(i))
	}
	if got := *c.times(); got != (StepTimes{Median: 20, FirstTenth: 2, LastTenth: 38}) {
		t.Errorf("times of 0 to 39 ms: %+v", got)
	}
	c = stepClock{}
	now := time.Now()
	c.resume(now)
	for range 3 {
		now = now.Add(5 * time.Millisecond)
		c.step(now)
		now = now.Add(20 * time.Millisecond) // an evaluation
		c.resume(now)
	}
	for i, ms := range c.ms {
		if ms != 5 {
			t.Errorf("step %d of 5 ms took %v ms", i, ms)
		}
	}
}

// stepWatch times from one step that it is told of to the next.
type stepWatch struct {
	Silent
	last time.Time
	ms   []float64
}

func (w *stepWatch) Start(RunInfo) error { w.last = time.Now(); return nil }
func (w *stepWatch) Step(StepInfo) error {
	now := time.Now()
	w.ms = append(w.ms, now.Sub(w.last).Seconds()*1e3)
	w.last = now
	return nil
}

// TestStepTimesAreWholeSteps: whether steps are waited for, saved, evaluated or none of it.
func TestStepTimesAreWholeSteps(t *testing.T) {
	for _, every := range []int{1, 2, 3, 0} {
		s := testSpec(t, 9)
		s.Device, s.Dataset.ValSplit, s.Training.SaveSteps, s.Training.EvalSteps = "cpu", 0.02, every, 2*every
		w := &stepWatch{}
		r := mustStart(t, s, Env{Observers: []Observer{w}})
		if r.StepMs == nil {
			t.Fatalf("saving every %d steps: no times", every)
		}
		if between := median(w.ms); every == 0 && !(r.StepMs.Median > between/2 && r.StepMs.Median < 2*between) {
			t.Errorf("a step takes %v ms in the median, %v ms go from one to the next", r.StepMs.Median, between)
		}
		for _, ms := range []float64{r.StepMs.Median, r.StepMs.FirstTenth, r.StepMs.LastTenth} {
			if ms < 1 {
				t.Errorf("saving every %d steps: %+v", every, *r.StepMs)
			}
		}
	}
}

// TestRunSaysHowExpectationsWereMet: criterion by criterion, in the result.
func TestRunSaysHowExpectationsWereMet(t *testing.T) {
	s := testSpec(t, 6)
	s.Device, s.Expect = "cpu", Expect{LossDecrease: 0.01, MaxVRAM: "1GB"}
	r := mustStart(t, s, Env{})
	if len(r.Expect) != 2 || !r.Expect[0].Met || !r.Expect[1].Met || r.Expect[0].Criterion != "loss_decrease" ||
		r.Expect[1].Want != "1GB" || r.StepMs == nil {
		t.Errorf("%+v, step times %v", r.Expect, r.StepMs)
	}
	if all, err := (Expect{LossDecrease: 0.5, MaxVRAM: "1KB"}).Judge(Outcome{Losses: []float64{2, 1.5},
		HeldBytes: 2000}); err != nil || all[0].Met || all[1].Met || all[0].Got != "25.0%, 2.0000 to 1.5000" {
		t.Errorf("missed: %+v, %v", all, err)
	}
}
