package train

import (
	"slices"
	"time"
)

// stepClock measures the time from the end of one step, or of an evaluation or save after it, to the end of the next.
type stepClock struct {
	last  time.Time
	spent time.Duration // time spent in all steps
	ms    []float64
}

// step records when a step was done.
func (c *stepClock) step(done time.Time) {
	took := done.Sub(c.last)
	c.ms = append(c.ms, float64(took.Nanoseconds())/1e6)
	c.spent += took
	c.last = done
}

// resume excludes the time since the last step, in which an evaluation or a save ran.
func (c *stepClock) resume(now time.Time) { c.last = now }

// times returns the medians; nil if nothing was timed.
func (c *stepClock) times() *StepTimes {
	n := len(c.ms)
	if n == 0 {
		return nil
	}
	tenth := max(1, n/10)
	return &StepTimes{Median: median(c.ms), FirstTenth: median(c.ms[:tenth]), LastTenth: median(c.ms[n-tenth:])}
}

func median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[len(x)/2]
}
