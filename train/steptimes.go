package train

import (
	"slices"
	"time"
)

// stepClock takes the time from the end of one step, or of what came between, to the end of the next.
type stepClock struct {
	last  time.Time
	spent time.Duration // in all steps
	ms    []float64
}

// step notes when a step was done.
func (c *stepClock) step(done time.Time) {
	took := done.Sub(c.last)
	c.ms = append(c.ms, float64(took.Nanoseconds())/1e6)
	c.spent += took
	c.last = done
}

// resume leaves out the time since the last step: an evaluation or a save came between.
func (c *stepClock) resume(now time.Time) { c.last = now }

// times sums up; nil where nothing was timed.
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
