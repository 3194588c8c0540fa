package train

import (
	"fmt"
	"time"
)

// dataClock takes the time in which the host makes the micro-batches of each step. On a device that works while the host
// does, that time costs nothing until it reaches the step's; on a CPU it is a part of the step.
type dataClock struct {
	ms    []float64
	since float64 // ms since the last line of metrics.jsonl, and the steps of it
	steps int
}

func (c *dataClock) add(took time.Duration) {
	ms := float64(took.Nanoseconds()) / 1e6
	c.ms, c.since, c.steps = append(c.ms, ms), c.since+ms, c.steps+1
}

// line is the mean of a step since the last call.
func (c *dataClock) line() float64 {
	ms := c.since / float64(max(c.steps, 1))
	c.since, c.steps = 0, 0
	return ms
}

// total is that of all steps, in seconds.
func (c *dataClock) total() float64 {
	sum := 0.0
	for _, ms := range c.ms {
		sum += ms
	}
	return sum / 1e3
}

// Shares of a step's time from which making its batches is worth a warning: on a device that works meanwhile before it
// has to wait, on a CPU where it is felt.
const (
	dataShareBehind = 0.5
	dataShareWithin = 0.1
	// dataStepsJudged is how many steps there must be for their median to mean something.
	dataStepsJudged = 20
)

// slowData is the warning of a run whose data is nearly as slow as its steps, in medians of milliseconds; "" = it is not.
func slowData(data, step float64, steps int, async, streaming bool) string {
	share := dataShareWithin
	what := "of which the CPU computes nothing"
	if async {
		share, what = dataShareBehind, "and the device waits once it takes as long as the step"
	}
	if steps < dataStepsJudged || data < share*step {
		return ""
	}
	remedy := "put dataset.cache_dir on a faster disk, give the process more memory for its pages, or set dataset.packing: true"
	if streaming {
		remedy = "give the program more CPU threads (--workers), or leave dataset.streaming out: rows are tokenised once then and kept in dataset.cache_dir"
	}
	return fmt.Sprintf("warning: making the batches of a step takes %.2f ms of its %.2f ms (%.0f%%), %s; %s", data, step, 100*data/step, what, remedy)
}
