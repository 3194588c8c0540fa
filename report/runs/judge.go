package runs

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/journal"
)

// LastStep returns the last step that a file in the folder has; 0 = none.
func (r *Run) LastStep() int {
	n := 0
	if len(r.Steps) > 0 {
		n = r.Steps[len(r.Steps)-1].Step
	}
	if len(r.Checkpoints) > 0 {
		n = max(n, r.Checkpoints[len(r.Checkpoints)-1])
	}
	if r.End != nil {
		n = max(n, r.End.Step)
	}
	return n
}

// Status is the state of a run according to its files.
type Status string

// The states of a run. Before runs had a journal, a run that a signal stopped and one that an error ended left the same
// files: both are Stopped.
const (
	Finished Status = "finished"
	Running  Status = "running"
	Stopped  Status = "stopped"
	Failed   Status = "failed"
)

// Status derives the state from the files: a line about the whole run is written last, a lock exists while a process
// uses the folder, and the journal says how the newest start ended.
func (r *Run) Status() Status {
	said := journal.State("")
	if r.Journal != nil {
		said = r.Journal.State
	}
	switch {
	case r.Held:
		return Running
	case r.End != nil && (said != journal.Failed || !r.Journal.ReachedSteps):
		return Finished
	case said == journal.Failed, r.Crashed:
		return Failed
	case said == journal.Interrupted:
		return Stopped
	case len(r.Steps) > 0 && !finite(r.Steps[len(r.Steps)-1].Loss):
		return Failed
	}
	return Stopped
}

// Error returns the error of the newest start of the run, in one line of at most most characters; "" = it did not fail,
// or no file has its error.
func (r *Run) Error(most int) string {
	switch {
	case r.Held:
		return ""
	case r.Journal != nil && (r.Journal.State == journal.Failed || r.Journal.State == journal.Missed):
		return safetext.Line(r.Journal.Error, most)
	case r.Crashed:
		if line := journal.Crash(r.Log); line != "" {
			return safetext.Line(line, most)
		}
		return "the process died: it was killed, or it crashed"
	}
	return ""
}

// shownError is the largest number of characters of an error in a verdict.
const shownError = 600

// Verdict returns the state of the run in a sentence.
func (r *Run) Verdict(checks report.Checks) report.Verdict {
	k, at := r.LastStep(), "step "+report.Whole(int64(r.LastStep()))
	if r.Total > 0 {
		at += " of " + report.Whole(int64(r.Total))
	}
	if k == 0 {
		at = "the first step is not logged yet"
	}
	switch r.Status() {
	case Finished:
		return r.finishedVerdict(checks)
	case Running:
		v := report.Verdict{State: report.Note, Named: true, Text: "running: " + at}
		if left := r.left(); left > 0 {
			v.Text += ", about " + report.Duration(left.Round(time.Second)) + " left"
		}
		if s := r.Smoothed(); len(s) > 0 && finite(s[len(s)-1]) {
			v.Text += fmt.Sprintf(", loss %s%s", report.Number(s[len(s)-1]), Trend(s))
		}
		return v
	case Failed:
		why := cmp.Or(r.Error(shownError), "the loss is not finite")
		if k == 0 {
			at = "before the first step"
		}
		return report.Verdict{State: report.Fail, Named: true, Text: fmt.Sprintf("failed, %s: %s", at, ended(why)) + r.resumes()}
	}
	if r.Journal != nil && r.Journal.State == journal.Interrupted {
		by := ""
		if r.Journal.ExitCode != nil {
			by = map[int]string{129: " by SIGHUP", 130: " by Ctrl-C (SIGINT)", 143: " by SIGTERM"}[*r.Journal.ExitCode]
		}
		if k == 0 {
			at = "before the first step"
		}
		return report.Verdict{State: report.Note, Named: true, Text: fmt.Sprintf("stopped%s: %s.", by, at) + r.resumes()}
	}
	return report.Verdict{State: report.Note, Named: true, Text: "stopped, or ended by an error: " + at + "." + r.resumes()}
}

// finishedVerdict returns the sentence about a run that did all its steps.
func (r *Run) finishedVerdict(checks report.Checks) report.Verdict {
	v := report.Verdict{State: report.Pass, Named: true, Text: fmt.Sprintf("finished: %s steps", report.Whole(int64(r.End.Step)))}
	if r.Total > r.End.Step {
		v.Text += " of " + report.Whole(int64(r.Total))
	}
	if s := r.seconds(); s > 0 {
		v.Text += " in " + report.Duration(seconds(s))
	}
	if m := r.Manifest; m != nil && m.EndedEarly != "" {
		v.Text += ", ended by " + safetext.Line(m.EndedEarly, shownError)
	}
	if m := r.Manifest; m != nil && m.ResultStep > 0 {
		v.Text += "; the result has the weights of step " + report.Whole(int64(m.ResultStep))
	}
	var missed []string
	for _, c := range checks {
		if c.State == report.Fail {
			missed = append(missed, c.What)
		}
	}
	why := r.Error(shownError)
	switch {
	case missed != nil:
		v.State = report.Fail
		v.Text += "; missed: " + strings.Join(missed, ", ")
	case r.Journal != nil && r.Journal.State == journal.Missed:
		v.State = report.Fail
		v.Text += "; " + why
	case why != "":
		v.State = report.Warn
		v.Text += "; a later start failed: " + why
	}
	return v
}

// ended returns a text with a full stop at its end if it has none.
func ended(text string) string {
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

// resumes names the checkpoint from which the run can be resumed.
func (r *Run) resumes() string {
	if len(r.Checkpoints) == 0 {
		return " No checkpoint was saved."
	}
	return fmt.Sprintf(" --resume auto continues from checkpoint-%d.", r.Checkpoints[len(r.Checkpoints)-1])
}

// seconds returns how long the run took according to its lines; 0 = not known. The last line of a resumed run only
// counts its last part.
func (r *Run) seconds() float64 {
	t := 0.0
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if finite(r.Steps[i].Seconds) {
			t = r.Steps[i].Seconds
			break
		}
	}
	if r.End != nil && r.End.Seconds < 1e12 {
		t = max(t, r.End.Seconds)
	}
	return t
}

// left returns how long the remaining steps take at the speed so far; 0 = not known.
func (r *Run) left() time.Duration {
	t, k := r.seconds(), r.LastStep()
	if !(t > 0) || k == 0 || r.Total <= k {
		return 0
	}
	return seconds(t / float64(k) * float64(r.Total-k))
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 1e9) * float64(time.Second)) }

// Trend describes the end of a smoothed curve compared with its value a tenth before.
func Trend(s []float64) string {
	was := s[len(s)-1-len(s)/10]
	now := s[len(s)-1]
	switch d := (was - now) / math.Abs(was); {
	case len(s) < 10 || !finite(d):
		return ""
	case d > 0.005:
		return ", falling"
	case d < -0.005:
		return ", rising"
	}
	return ", flat"
}

// smoothings are the levels of smoothing that a reader chooses from: half-lives as shares of the curve. A page first
// shows the one at index usual.
var smoothings = []float64{0, 0.005, 0.01, 0.02, 0.05, 0.1}

// usual is the index in smoothings of the level that a page shows first.
const usual = 3

// halfLife returns, for a curve of n points, the distance in points after which the weight of a point halves, for a
// half-life that is a share of the curve. The distance is a whole number, so that a curve that grows keeps its shape
// for a while, and at least 1.
func halfLife(n int, share float64) float64 { return math.Max(1, math.Floor(float64(n)*share+1e-9)) }

// smooth returns the weighted mean around each point, s(t) = Σ β^|t-i| y(i) / Σ β^|t-i| with β = 2^(-1/h). It looks to
// both sides, so that it does not lag behind a falling curve; at the last point it only has the past. Values that are
// not finite are ignored, and stay not finite in the result.
func smooth(y []float64, h float64) []float64 {
	beta := math.Exp2(-1 / h)
	out := make([]float64, len(y))
	weights := make([]float64, len(y))
	sum, weight := 0.0, 0.0
	for i, v := range y { // i <= t
		if finite(v) {
			sum, weight = beta*sum+v, beta*weight+1
		}
		out[i], weights[i] = sum, weight
	}
	sum, weight = 0, 0
	for i := len(y) - 1; i >= 0; i-- { // i > t
		if !finite(y[i]) {
			out[i] = math.NaN()
			continue
		}
		out[i] = (out[i] + sum) / (weights[i] + weight)
		sum, weight = beta*(sum+y[i]), beta*(weight+1)
	}
	return out
}

// Smooth returns the curve that a page first shows, from the value of each line.
func Smooth(y []float64) []float64 { return smoothAt(y, smoothings[usual]) }

// smoothAt returns a curve at a level of smoothing; a level of 0 leaves it as it is.
func smoothAt(y []float64, share float64) []float64 {
	if share <= 0 {
		return y
	}
	return smooth(y, halfLife(len(y), share))
}

// Smoothed returns the smoothed loss that the run's page first shows, at each logged line.
func (r *Run) Smoothed() []float64 { return r.smoothedAt(smoothings[usual]) }

// smoothedAt returns the loss at each logged line, smoothed over a share of the curve.
func (r *Run) smoothedAt(share float64) []float64 {
	x, y, _ := r.losses()
	curve := report.Series{X: x, Y: smoothAt(y, share)}
	if len(y) == len(r.Steps) {
		return curve.Y
	}
	return column(r.Steps, func(s Step) float64 { return at(curve, float64(s.Step)) })
}

func column(steps []Step, of func(Step) float64) []float64 {
	v := make([]float64, len(steps))
	for i, s := range steps {
		v[i] = of(s)
	}
	return v
}

func finite(v float64) bool { return math.Abs(v) <= 1e300 }

// BestEval returns the evaluation with the lowest finite loss, the first of equal ones; nil without an evaluation.
func (r *Run) BestEval() *Eval {
	var best *Eval
	for i, e := range r.Evals {
		if finite(e.Loss) && (best == nil || e.Loss < best.Loss) {
			best = &r.Evals[i]
		}
	}
	return best
}

// HeldBytes returns the planned memory of the run in bytes; 0 = not known.
func (r *Run) HeldBytes() int64 {
	if r.Plan != nil && r.Plan.TotalBytes > 0 {
		return r.Plan.TotalBytes
	}
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if g := r.Steps[i].HeldGiB; g > 0 && g < 1e6 {
			return int64(math.Round(g * (1 << 30)))
		}
	}
	return 0
}

// Setting returns the value of a key, or "".
func (r *Run) Setting(key string) string {
	for _, s := range r.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// criterion is a key of the section expect with its bound.
type criterion struct {
	key  string
	e    train.Expect
	skip string // reason why it cannot be judged; "" = it can
}

// boundCriteria returns the bounds of named numbers as criteria, and adds their last values to the outcome.
func (r *Run) boundCriteria(o *train.Outcome) (all []criterion) {
	o.Numbers = map[string]float64{}
	for _, s := range r.Settings {
		name, ok := strings.CutPrefix(s.Key, "expect.at_")
		kind, key, there := strings.Cut(name, ".")
		bound, err := strconv.ParseFloat(s.Value, 64)
		if !ok || !there || err != nil {
			continue
		}
		c := criterion{key: "at_" + kind + "." + key}
		switch of := map[string]float64{key: bound}; kind {
		case "least":
			c.e.AtLeast = of
		case "most":
			c.e.AtMost = of
		}
		if at, v, there := r.last(key); !there || strings.HasPrefix(key, evalPrefix) && at != r.Total {
			c.skip = "the end of the run reports no " + key
		} else {
			o.Numbers[key] = v
		}
		all = append(all, c)
	}
	return all
}

// Checks judges the criteria of the configuration's section expect, as the run does at its end.
func (r *Run) Checks() report.Checks {
	number := func(key string) float64 { v, _ := strconv.ParseFloat(r.Setting("expect."+key), 64); return v }
	o := train.Outcome{Losses: r.Losses, HeldBytes: r.HeldBytes()}
	noEval := "it was not evaluated after the last step"
	if n := len(r.Evals); n > 0 {
		if r.Evals[0].Step == 0 {
			o.EvalBefore = &r.Evals[0].Loss
		}
		if r.Evals[n-1].Step == r.Total {
			o.EvalLoss, noEval = &r.Evals[n-1].Loss, ""
		}
	}
	var checks report.Checks
	criteria := []criterion{
		{"loss_decrease", train.Expect{LossDecrease: number("loss_decrease")}, r.whyNoLosses()},
		{"eval_loss_decrease", train.Expect{EvalLossDecrease: number("eval_loss_decrease")}, noEval},
		{"eval_loss_max", train.Expect{EvalLossMax: number("eval_loss_max")}, noEval},
		{"max_vram", train.Expect{MaxVRAM: r.Setting("expect.max_vram")}, map[bool]string{true: "the memory that the run held is not known"}[o.HeldBytes == 0]},
	}
	for _, one := range append(criteria, r.boundCriteria(&o)...) {
		if reflect.DeepEqual(one.e, train.Expect{}) || one.e.Validate() != nil {
			continue
		}
		c := report.Check{What: "expect." + one.key}
		if r.End == nil {
			one.skip = "it is judged after the last step"
		}
		judged, err := one.e.Judge(o)
		switch {
		case one.skip != "":
			c.State, c.Detail = report.Skip, one.skip
		case err != nil:
			c.State, c.Detail = report.Skip, err.Error()
		case len(judged) == 0:
			continue
		default:
			c.State, c.Detail = report.Fail, judged[0].Got+", wanted "+judged[0].Want
			if judged[0].Met {
				c.State = report.Pass
			}
		}
		checks = append(checks, c)
	}
	return append(checks, r.referenceCheck()...)
}

func (r *Run) whyNoLosses() string {
	if r.Losses == nil {
		return "no checkpoint of the last step says the loss of every step"
	}
	return ""
}
