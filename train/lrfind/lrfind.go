// Package lrfind suggests a learning rate from the losses of a learning-rate range test: a short training whose rate
// rises geometrically from step to step (Smith 2017). It has the rates of the steps, the smoothing of the losses, and
// the rules by which a test ends and a rate is suggested.
//
// Losses differ from batch to batch by more than a step changes them. So each step's loss is compared with that of the
// same batch before training: the difference, added to the mean loss before training, is the adjusted loss.
package lrfind

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Bounds and constants of a range test.
const (
	DefaultFrom  = 1e-6 // learning rate of the first step
	DefaultTo    = 1e-1 // learning rate of the last step
	DefaultSteps = 100  // optimizer steps
	LeastSteps   = 10   // fewest steps that the rules work with
	MostSteps    = 10_000

	// smoothing is the weight of the past in the moving average of the losses.
	smoothing = 0.9
	// diverged is the multiple of the mean loss before training at which a test ends.
	diverged = 1.5
	// leastFall is the share of the mean loss before training by which the smoothed loss must fall for a suggestion.
	leastFall = 0.01
	// divisor divides the rate of the lowest smoothed loss.
	divisor = 10
)

// Options are the range of the rates and the number of steps of a test.
type Options struct {
	From  float64 // learning rate of the first step, above 0
	To    float64 // learning rate of the last step, above From
	Steps int     // optimizer steps, LeastSteps to MostSteps
}

// Defaults returns the options of a test that names none.
func Defaults() Options { return Options{From: DefaultFrom, To: DefaultTo, Steps: DefaultSteps} }

// Check returns an error that names the first option with a bad value.
func (o Options) Check() error {
	switch {
	case !(o.From > 0) || math.IsInf(o.From, 1):
		return fmt.Errorf("--from %v: a learning rate above 0 is needed", o.From)
	case !(o.To > o.From) || math.IsInf(o.To, 1):
		return fmt.Errorf("--to %v: must be above --from, which is %v", o.To, o.From)
	case o.Steps < LeastSteps || o.Steps > MostSteps:
		return fmt.Errorf("--steps %d: must lie in %d to %d", o.Steps, LeastSteps, MostSteps)
	}
	return nil
}

// Rate returns the learning rate of a step, counted from 0.
func (o Options) Rate(step int) float64 {
	return o.From * math.Pow(o.To/o.From, float64(step)/float64(o.Steps-1))
}

// Point is a step of a test.
type Point struct {
	Rate   float64 `json:"learning_rate"`
	Loss   float64 `json:"loss"`        // loss before the step's update
	Before float64 `json:"loss_before"` // loss of the same batch before training
	// Smoothed is the moving average of the adjusted losses so far, without the bias of its start.
	Smoothed float64 `json:"smoothed_loss"`
}

// Report is the result of a test.
type Report struct {
	Points []Point `json:"points"`
	Before float64 `json:"loss_before"` // mean loss of all batches before training
	// Suggested is the learning rate that the rule suggests; 0 = none, and Why says why.
	Suggested float64 `json:"suggested_learning_rate"`
	// Lowest is the rate of the lowest smoothed loss, Steepest the one at which the smoothed loss falls fastest, per
	// factor of the rate; 0 = it falls at none.
	Lowest   float64 `json:"lowest_loss_at"`
	Steepest float64 `json:"steepest_fall_at"`
	Ended    string  `json:"ended"` // why the test ended
	Why      string  `json:"why"`   // the rule of the suggestion, or why there is none
}

// Curve collects the losses of a test.
type Curve struct {
	options Options
	before  []float64 // loss of each step's batch before training
	mean    float64   // mean of before
	points  []Point
	average float64
	ended   string
}

// Errors of a test.
var (
	// ErrNoLoss means that the losses of the run's objective do not measure progress.
	ErrNoLoss = errors.New("the loss says nothing about a learning rate")
	// ErrNotFinite means that a loss before training is not finite.
	ErrNotFinite = errors.New("a loss before training is not finite")
)

// NewCurve returns an empty curve for a test with these options, which must pass Check. before has the loss of each
// step's batch before training.
func NewCurve(o Options, before []float64) (*Curve, error) {
	sum := 0.0
	for i, loss := range before {
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return nil, fmt.Errorf("%w: the batch of step %d has the loss %v", ErrNotFinite, i+1, loss)
		}
		sum += loss
	}
	return &Curve{options: o, before: before, mean: sum / float64(len(before))}, nil
}

// Rate returns the learning rate of the next step.
func (c *Curve) Rate() float64 { return c.options.Rate(len(c.points)) }

// Add records the loss of the next step and reports whether the test goes on.
func (c *Curve) Add(loss float64) bool {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		c.ended = fmt.Sprintf("the loss was %v at a learning rate of %.2e", loss, c.Rate())
		return false
	}
	n, before := len(c.points)+1, c.before[len(c.points)]
	c.average = float64(smoothing*c.average) + float64((1-smoothing)*(c.mean+loss-before))
	p := Point{c.Rate(), loss, before, c.average / (1 - math.Pow(smoothing, float64(n)))}
	c.points = append(c.points, p)
	switch {
	case n == c.options.Steps:
		c.ended = fmt.Sprintf("all %d steps were made", n)
	case p.Smoothed > diverged*c.mean:
		c.ended = fmt.Sprintf("the smoothed loss was %.2f times that before training at a learning rate of %.2e",
			p.Smoothed/c.mean, p.Rate)
	}
	return c.ended == ""
}

// Report applies the rule to the losses so far.
func (c *Curve) Report() Report {
	r := Report{Points: c.points, Before: c.mean, Ended: c.ended}
	if len(c.points) == 0 {
		r.Why = "none: no step has a finite loss"
		return r
	}
	lowest := 0
	for i, p := range c.points {
		if p.Smoothed < c.points[lowest].Smoothed {
			lowest = i
		}
	}
	r.Lowest = c.points[lowest].Rate
	r.Steepest = c.steepest(lowest)
	switch fall := 1 - c.points[lowest].Smoothed/c.mean; {
	case !(fall >= leastFall):
		r.Why = fmt.Sprintf("none: the smoothed loss never fell by %g%% of %.4g, the mean before training; "+
			"try more --steps, larger batches or a higher --to", 100*leastFall, c.mean)
	case lowest == c.options.Steps-1:
		r.Why = fmt.Sprintf("none: the loss still falls at %.2e, the highest rate; try a higher --to", r.Lowest)
	default:
		r.Suggested = rounded(r.Lowest / divisor)
		r.Why = fmt.Sprintf("a tenth of the rate at which the smoothed loss is lowest, %.2e", r.Lowest)
	}
	return r
}

// steepest returns the rate at which the smoothed loss falls fastest before the lowest one, as the slope over the
// logarithm of the rate between the neighbours of a step; 0 = it falls nowhere.
func (c *Curve) steepest(lowest int) float64 {
	rate, least := 0.0, 0.0
	for i := 1; i < lowest; i++ {
		if fall := c.points[i+1].Smoothed - c.points[i-1].Smoothed; fall < least {
			rate, least = c.points[i].Rate, fall
		}
	}
	return rate
}

// rounded rounds a positive number to two significant digits.
func rounded(v float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 1, 64), 64)
	if err != nil {
		return v
	}
	return short
}
