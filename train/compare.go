package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// ReferenceCurveFile is the name of the file in a run's output folder that has the run's curve beside the reference's.
const ReferenceCurveFile = "reference_curve.json"

// Comparison compares a run with a reference curve. Losses are in nats per token.
type Comparison struct {
	Reference string            `json:"reference"` // name that expect.reference has
	BaseModel string            `json:"base_model"`
	MadeBy    map[string]string `json:"made_by"`
	Seeds     int               `json:"seeds"`
	Window    int               `json:"window"`
	Tolerance Tolerance         `json:"tolerance"`
	// NotComparable lists the reasons why the curve belongs to another subject. A run with such a reason fails,
	// whatever its losses are.
	NotComparable []string `json:"not_comparable,omitempty"`
	Steps         int      `json:"steps"` // number of compared steps
	// Number of steps whose loss is further from the mean than allowed.
	Outside int    `json:"steps_outside"`
	First   *Point `json:"first_outside,omitempty"` // first step outside the allowed distance; nil = none
	// Step whose distance is the largest part of the allowed one.
	Worst      *Point `json:"worst,omitempty"`
	Final      *Point `json:"final_loss,omitempty"` // smoothed loss at the last step
	EvalBefore *Point `json:"eval_loss_before,omitempty"`
	EvalLoss   *Point `json:"eval_loss,omitempty"`
}

// Point is a loss of the run beside the reference's mean.
type Point struct {
	Step    int     `json:"step"`
	Run     float64 `json:"run"`
	Mean    float64 `json:"mean"`
	Spread  float64 `json:"spread"`
	Allowed float64 `json:"allowed"` // allowed distance from the mean
}

// MarshalJSON writes null for a loss that is not finite.
func (p Point) MarshalJSON() ([]byte, error) {
	type plain Point
	return json.Marshal(struct {
		plain
		Run *float64 `json:"run"`
	}{plain(p), finiteOrNil(p.Run)})
}

// UnmarshalJSON reads null as NaN.
func (p *Point) UnmarshalJSON(text []byte) error {
	type plain Point
	read := struct {
		*plain
		Run *float64 `json:"run"`
	}{plain: (*plain)(p)}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	p.Run = numberOrNaN(read.Run)
	return nil
}

func numberOrNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

func (p Point) inside() bool { return math.Abs(p.Run-p.Mean) <= p.Allowed } // false for NaN

// share is the distance as a part of what is allowed; infinite for NaN.
func (p Point) share() float64 {
	if s := math.Abs(p.Run-p.Mean) / p.Allowed; !math.IsNaN(s) {
		return s
	}
	return math.Inf(1)
}

// String says how far the run is off, and in which direction.
func (p Point) String() string {
	d := p.Run - p.Mean
	direction := "above"
	switch {
	case math.IsNaN(d):
		return fmt.Sprintf("%v, no number; the reference has %.4f", p.Run, p.Mean)
	case d < 0:
		direction = "below"
	}
	return fmt.Sprintf("%.4f, %.4f %s the reference's %.4f (allowed %.4f)", p.Run, math.Abs(d),
		direction, p.Mean, p.Allowed)
}

// Outcome is what the expectations of a finished run are judged by.
type Outcome struct {
	Losses     []float64 // loss of every step
	HeldBytes  int64
	EvalBefore *float64 // evaluation loss before the first step; nil = not evaluated
	EvalLoss   *float64
	// Numbers are the last values of named numbers by their keys in metrics.jsonl, at least those that AtLeast and
	// AtMost name.
	Numbers   map[string]float64
	Reference *Reference // curve of expect.reference; nil = none
	Subject   Subject    // subject of the run; set only with Reference
}

// compare compares the run's curve with the reference.
func (o Outcome) compare(name string) *Comparison {
	r := o.Reference
	c := &Comparison{Reference: name, BaseModel: r.BaseModel, MadeBy: r.MadeBy, Seeds: len(r.Seeds), Window: r.Window,
		Tolerance: r.Tolerance, NotComparable: o.Subject.difference(r.Subject)}
	if n := len(o.Losses); n != r.Subject.Steps && o.Subject.Steps == r.Subject.Steps {
		c.NotComparable = append(c.NotComparable,
			fmt.Sprintf("the run has the losses of %d of its %d steps: some were left out", n, r.Subject.Steps))
	}
	point := func(step int, run float64, b Band) *Point {
		return &Point{Step: step, Run: run, Mean: b.Mean, Spread: b.Spread, Allowed: r.allowed(b)}
	}
	for i, run := range Smooth(o.Losses, r.Window)[:min(len(o.Losses), r.Subject.Steps)] {
		p := point(i+1, run, Band{r.Loss.Mean[i], r.Loss.Spread[i]})
		c.Steps++
		if !p.inside() {
			c.Outside++
			if c.First == nil {
				c.First = p
			}
		}
		if c.Worst == nil || p.share() > c.Worst.share() {
			c.Worst = p
		}
		c.Final = p
	}
	if r.EvalLoss != nil {
		if o.EvalBefore != nil {
			c.EvalBefore = point(0, *o.EvalBefore, Band{Mean: *r.EvalBefore})
			// The adapter adds nothing yet, so the loss does not depend on the seed.
			c.EvalBefore.Allowed = r.Tolerance.Floor
		}
		if o.EvalLoss != nil {
			c.EvalLoss = point(o.Subject.Steps, *o.EvalLoss, *r.EvalLoss)
		} else {
			c.NotComparable = append(c.NotComparable, "the run was not evaluated on the validation rows")
		}
	}
	return c
}

// misses returns the reasons why the run does not match the reference; none if it does.
func (c *Comparison) misses() []string {
	if c.NotComparable != nil {
		return []string{"not comparable: " + strings.Join(c.NotComparable, ", ") +
			"; scripts/reference_curve.py makes the curve of another configuration or base model"}
	}
	var why []string
	if c.Outside > 0 {
		why = append(why, fmt.Sprintf("%d of %d steps are outside the band, first step %d: smoothed loss %v; "+
			"furthest step %d: %v", c.Outside, c.Steps, c.First.Step, *c.First, c.Worst.Step, *c.Worst))
	}
	for _, e := range []struct {
		what string
		p    *Point
	}{{"the held-out loss before the first step", c.EvalBefore}, {"the held-out loss at the end", c.EvalLoss}} {
		if e.p != nil && !e.p.inside() {
			why = append(why, fmt.Sprintf("%s is %v", e.what, *e.p))
		}
	}
	return why
}

// summary returns the comparison in one line.
func (c *Comparison) summary() string {
	if c.NotComparable != nil {
		return "not comparable"
	}
	line := fmt.Sprintf("%d of %d steps inside", c.Steps-c.Outside, c.Steps)
	if c.Worst != nil {
		line += fmt.Sprintf(", furthest step %d with %.4f of %.4f", c.Worst.Step,
			math.Abs(c.Worst.Run-c.Worst.Mean), c.Worst.Allowed)
	}
	if c.EvalLoss != nil {
		line += fmt.Sprintf(", held-out loss %.4f beside %.4f +- %.4f", c.EvalLoss.Run,
			c.EvalLoss.Mean, c.EvalLoss.Allowed)
	}
	return line
}

// judgeReference judges the criterion reference.
func (e Expect) judgeReference(o Outcome) Judged { return o.compare(e.Reference).Judge() }

// Judge judges the criterion reference.
func (c *Comparison) Judge() Judged {
	t := c.Tolerance
	j := Judged{Criterion: "reference", Want: fmt.Sprintf("within %g spreads + %g of %s", t.K, t.Floor, c.Reference),
		Got: c.summary(), Comparison: c}
	why := c.misses()
	j.Met, j.miss = why == nil, fmt.Sprintf("reference %s: %s", c.Reference, strings.Join(why, "; "))
	return j
}

// ReferenceCurve is the content of ReferenceCurveFile: what a plot of the run with the reference's band needs. Arrays
// have a number for each step; Run has one for each step of the run, the others one for each step of the reference.
type ReferenceCurve struct {
	Comparison
	Run  []*float64 `json:"run"`  // smoothed loss of the run; null = not finite
	Mean []float64  `json:"mean"` // mean of the reference
	Low  []float64  `json:"low"`  // lower bound: the mean minus the allowed distance
	High []float64  `json:"high"`
}

// writeReferenceCurve saves a comparison in dir.
func (o Outcome) writeReferenceCurve(dir string, c *Comparison) error {
	r := o.Reference
	f := ReferenceCurve{Comparison: *c, Mean: r.Loss.Mean, Run: []*float64{}}
	for _, l := range Smooth(o.Losses, r.Window) {
		f.Run = append(f.Run, finiteOrNil(l))
	}
	for i, mean := range r.Loss.Mean {
		allowed := r.allowed(Band{mean, r.Loss.Spread[i]})
		f.Low, f.High = append(f.Low, mean-allowed), append(f.High, mean+allowed)
	}
	data, err := json.Marshal(f)
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, ReferenceCurveFile), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", ReferenceCurveFile, err)
	}
	return nil
}

// Validate returns an error that says what is wrong with the content of a ReferenceCurveFile.
func (f *ReferenceCurve) Validate() error {
	switch n := len(f.Mean); {
	case f.Reference == "" || n == 0 || len(f.Low) != n || len(f.High) != n:
		return errors.New("it names no reference, or mean, low and high are not a number for each step")
	case f.Steps < 0 || f.Steps > len(f.Run) || f.Outside < 0 || f.Outside > f.Steps ||
		f.Outside > 0 && (f.First == nil || f.Worst == nil):
		return fmt.Errorf("%d of %d steps outside are not what a comparison counts", f.Outside, f.Steps)
	case f.Steps == 0 && f.NotComparable == nil:
		return errors.New("no step was compared")
	}
	return nil
}

// Losses returns the run's smoothed losses; NaN = not finite.
func (f *ReferenceCurve) Losses() []float64 {
	losses := make([]float64, len(f.Run))
	for i, l := range f.Run {
		losses[i] = numberOrNaN(l)
	}
	return losses
}
