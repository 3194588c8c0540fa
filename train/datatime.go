package train

import (
	"fmt"
	"time"
)

// dataClock measures the host's time to make the micro-batches of each step. A device that works asynchronously hides
// that time unless it is longer than the step; on a CPU it is a part of the step.
type dataClock struct {
	ms []float64
	// since is the time in ms since the last line of metrics.jsonl, and the number of steps in it.
	since float64
	steps int
}

func (c *dataClock) add(took time.Duration) {
	ms := float64(took.Nanoseconds()) / 1e6
	c.ms, c.since, c.steps = append(c.ms, ms), c.since+ms, c.steps+1
}

// line returns the mean per step since the last call, in ms.
func (c *dataClock) line() float64 {
	ms := c.since / float64(max(c.steps, 1))
	c.since, c.steps = 0, 0
	return ms
}

// total returns the time of all steps, in seconds.
func (c *dataClock) total() float64 {
	sum := 0.0
	for _, ms := range c.ms {
		sum += ms
	}
	return sum / 1e3
}

// Shares of a step's time above which making its batches causes a warning. An asynchronous device hides the time until
// it has to wait; a CPU loses all of it.
const (
	dataShareBehind = 0.5
	dataShareWithin = 0.1
	// dataStepsJudged is the least number of steps for which the medians are judged.
	dataStepsJudged = 20
)

// slowData returns the warning for a run whose data loading is nearly as slow as its steps, in medians of milliseconds;
// "" = no warning.
func slowData(data, step float64, steps int, async, streaming bool) string {
	share := dataShareWithin
	what := "of which the CPU computes nothing"
	if async {
		share, what = dataShareBehind, "and the device waits once it takes as long as the step"
	}
	if steps < dataStepsJudged || data < share*step {
		return ""
	}
	remedy := "put dataset.cache_dir on a faster disk, give the process more memory for its pages, or set " +
		"dataset.packing: true"
	if streaming {
		remedy = "give the program more CPU threads (--workers), or leave dataset.streaming out: rows are " +
			"tokenised once then and kept in dataset.cache_dir"
	}
	return fmt.Sprintf("warning: making the batches of a step takes %.2f ms of its %.2f ms (%.0f%%), %s; %s", data,
		step, 100*data/step, what, remedy)
}
