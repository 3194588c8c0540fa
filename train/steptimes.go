package train

import (
	"slices"
	"time"
)

// stepClock takes the time from the numbers of one step to those of the next.
type stepClock struct {
	last time.Time // of the step before; zero where something came between
	ms   []float64
}

// step notes that a step's numbers have come.
func (c *stepClock) step() {
	now := time.Now()
	if !c.last.IsZero() {
		c.ms = append(c.ms, float64(now.Sub(c.last).Nanoseconds())/1e6)
	}
	c.last = now
}

// pause leaves out the time until the next step: an evaluation or a save comes between.
func (c *stepClock) pause() { c.last = time.Time{} }

// times sums up; nil where nothing was timed.
func (c *stepClock) times() *StepTimes {
	n := len(c.ms)
	if n == 0 {
		return nil
	}
	tenth := max(1, n/10)
	return &StepTimes{Median: middle(c.ms), FirstTenth: middle(c.ms[:tenth]), LastTenth: middle(c.ms[n-tenth:])}
}

func middle(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[len(x)/2]
}
