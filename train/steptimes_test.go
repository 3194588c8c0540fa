package train

import (
	"testing"
	"time"
)

// TestStepClock: medians of the steps and of their first and last tenth; the step after a pause is not timed.
func TestStepClock(t *testing.T) {
	var c stepClock
	c.step()
	if c.times() != nil {
		t.Error("one step has a time")
	}
	for i := range 40 {
		c.ms = append(c.ms, float64(i))
	}
	if got := *c.times(); got != (StepTimes{Median: 20, FirstTenth: 2, LastTenth: 38}) {
		t.Errorf("times of 0 to 39 ms: %+v", got)
	}
	c = stepClock{}
	for range 3 {
		c.step()
	}
	c.pause()
	time.Sleep(20 * time.Millisecond)
	c.step()
	if len(c.ms) != 2 || c.ms[0] > 15 || c.ms[1] > 15 {
		t.Errorf("three steps, a pause of 20 ms and a step give %v", c.ms)
	}
}

// TestRunSaysHowExpectationsWereMet: criterion by criterion, in the result.
func TestRunSaysHowExpectationsWereMet(t *testing.T) {
	s := testSpec(t, 6)
	s.Device, s.Expect = "cpu", Expect{LossDecrease: 0.01, MaxVRAM: "1GB"}
	r := mustStart(t, s, Env{})
	if len(r.Expect) != 2 || !r.Expect[0].Met || !r.Expect[1].Met || r.Expect[0].Criterion != "loss_decrease" || r.Expect[1].Want != "1GB" || r.StepMs == nil {
		t.Errorf("%+v, step times %v", r.Expect, r.StepMs)
	}
	if all, err := (Expect{LossDecrease: 0.5, MaxVRAM: "1KB"}).Judge([]float64{2, 1.5}, 2000); err != nil || all[0].Met || all[1].Met || all[0].Got != "25.0 %, 2.0000 to 1.5000" {
		t.Errorf("missed: %+v, %v", all, err)
	}
}
