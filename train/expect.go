package train

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/session"
)

// Validate returns every problem of the section, each naming its key.
func (e Expect) Validate() []error {
	problems := keys.Check("expect.", e)
	if e.MaxVRAM != "" {
		if _, err := session.ParseBytes(e.MaxVRAM); err != nil {
			problems = append(problems, fmt.Errorf("expect.max_vram: %w", err))
		}
	}
	return problems
}

// Missed is the error of a run that finished but did not meet its expectations.
type Missed struct{ Criteria []string }

// Error lists the criteria that were missed.
func (m *Missed) Error() string { return "expectation missed: " + strings.Join(m.Criteria, "; ") }

// Judged is a criterion of the section with its result.
type Judged struct {
	Criterion string `json:"criterion"` // key of the criterion
	Want      string `json:"want"`
	Got       string `json:"got"`
	Met       bool   `json:"met"`
	// Comparison has the numbers of the criterion reference; nil for other criteria.
	Comparison *Comparison `json:"comparison,omitempty"`
	miss       string      // text that MissedOf reports
}

// MissedOf returns a *Missed that says by how much each criterion was missed; nil if all were met.
func MissedOf(judged []Judged) error {
	var missed []string
	for _, j := range judged {
		if !j.Met {
			missed = append(missed, j.miss)
		}
	}
	if missed != nil {
		return &Missed{missed}
	}
	return nil
}

// Judge compares a finished run with the section: the mean loss of the last tenth of the steps (at least one step)
// against that of the first tenth, the validation loss, the bounds of named numbers, the curve against the reference's,
// and the planned memory.
func (e Expect) Judge(o Outcome) ([]Judged, error) {
	var all []Judged
	losses, heldBytes := o.Losses, o.HeldBytes
	if e.LossDecrease > 0 {
		j := Judged{Criterion: "loss_decrease", Want: fmt.Sprintf("%.1f%%", 100*e.LossDecrease)}
		if len(losses) < 2 {
			j.Got, j.miss = "too few steps",
				fmt.Sprintf("loss_decrease can't be judged after %d steps: it takes at least 2", len(losses))
		} else {
			first, last, fall := LossFall(losses)
			j.Got, j.Met = fmt.Sprintf("%.1f%%, %.4f to %.4f", 100*fall, first, last), fall >= e.LossDecrease
			j.miss = fmt.Sprintf("the loss fell by %.1f%% (mean %.4f of the first tenth of %d steps to %.4f of the "+
				"last), expected was %.1f%%: short of it by %.1f percentage points",
				100*fall, first, len(losses), last, 100*e.LossDecrease, 100*(e.LossDecrease-fall))
		}
		all = append(all, j)
	}
	if e.EvalLossDecrease > 0 {
		all = append(all, e.judgeEvalFall(o))
	}
	if e.EvalLossMax > 0 {
		all = append(all, e.judgeEvalMax(o))
	}
	all = append(all, e.judgeBounds(o)...)
	if e.Reference != "" {
		if o.Reference == nil {
			return nil, fmt.Errorf("expect.reference: %s was not read", e.Reference)
		}
		all = append(all, e.judgeReference(o))
	}
	if e.MaxVRAM != "" {
		limit, err := session.ParseBytes(e.MaxVRAM)
		if err != nil {
			return nil, fmt.Errorf("expect.max_vram: %w", err)
		}
		all = append(all, Judged{Criterion: "max_vram", Want: e.MaxVRAM, Got: fmt.Sprintf("%d bytes", heldBytes),
			Met: heldBytes <= limit,
			miss: fmt.Sprintf("the run held %d bytes (%s), expected were at most %s: over it by %d bytes (%s)",
				heldBytes, session.FormatBytes(heldBytes), e.MaxVRAM, heldBytes-limit,
				session.FormatBytes(heldBytes-limit))})
	}
	return all, nil
}

const notEvaluated = "not evaluated"

func (e Expect) judgeEvalFall(o Outcome) Judged {
	j := Judged{Criterion: "eval_loss_decrease", Want: fmt.Sprintf("%.1f%%", 100*e.EvalLossDecrease), Got: notEvaluated}
	if o.EvalBefore == nil || o.EvalLoss == nil {
		j.miss = "eval_loss_decrease can't be judged: there is no evaluation before the first step and after the " +
			"last (training.eval_on_start, dataset.val_path)"
		return j
	}
	before, after := *o.EvalBefore, *o.EvalLoss
	fall := (before - after) / before
	j.Got, j.Met = fmt.Sprintf("%.1f%%, %.4f to %.4f", 100*fall, before, after), fall >= e.EvalLossDecrease
	j.miss = fmt.Sprintf("the held-out loss fell by %.1f%% (%.4f before the first step, %.4f at the end), expected "+
		"was %.1f%%: short of it by %.1f percentage points",
		100*fall, before, after, 100*e.EvalLossDecrease, 100*(e.EvalLossDecrease-fall))
	return j
}

func (e Expect) judgeEvalMax(o Outcome) Judged {
	j := Judged{Criterion: "eval_loss_max", Want: fmt.Sprintf("at most %g", e.EvalLossMax), Got: notEvaluated,
		miss: "eval_loss_max can't be judged: there is no evaluation (dataset.val_path)"}
	if o.EvalLoss != nil {
		j.Got, j.Met = fmt.Sprintf("%.4f", *o.EvalLoss), *o.EvalLoss <= e.EvalLossMax
		j.miss = fmt.Sprintf("the held-out loss is %.4f, expected was at most %g: over it by %.4f", *o.EvalLoss,
			e.EvalLossMax, *o.EvalLoss-e.EvalLossMax)
	}
	return j
}

// bounded returns the keys of the numbers that AtLeast and AtMost bound.
func (e Expect) bounded() []string {
	return append(slices.Sorted(maps.Keys(e.AtLeast)), slices.Sorted(maps.Keys(e.AtMost))...)
}

// judgeBounds compares the last values of numbers with AtLeast and AtMost. A value that is not a number misses its
// bound.
func (e Expect) judgeBounds(o Outcome) (all []Judged) {
	judge := func(criterion, word, key string, bound float64, met func(v float64) bool) {
		j := Judged{Criterion: criterion + "." + key, Want: fmt.Sprintf("%s %g", word, bound), Got: "not reported",
			miss: fmt.Sprintf("%s.%s can't be judged: the run reported no %s", criterion, key, key)}
		if v, ok := o.Numbers[key]; ok {
			j.Got, j.Met = fmt.Sprintf("%.4g", v), met(v)
			j.miss = fmt.Sprintf("%s is %.4g, expected was %s %g: off by %.4g", key, v, word, bound, math.Abs(v-bound))
		}
		all = append(all, j)
	}
	for _, key := range slices.Sorted(maps.Keys(e.AtLeast)) {
		judge("at_least", "at least", key, e.AtLeast[key], func(v float64) bool { return v >= e.AtLeast[key] })
	}
	for _, key := range slices.Sorted(maps.Keys(e.AtMost)) {
		judge("at_most", "at most", key, e.AtMost[key], func(v float64) bool { return v <= e.AtMost[key] })
	}
	return all
}

// LossFall returns the mean loss of the first tenth of the steps, that of the last tenth, and the fall as a part of the
// first. A tenth is at least one step. The fall is NaN if there are no losses.
func LossFall(losses []float64) (first, last, fall float64) {
	tenth := max(1, len(losses)/10)
	if len(losses) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	for i := range tenth {
		first += losses[i] / float64(tenth)
		last += losses[len(losses)-tenth+i] / float64(tenth)
	}
	return first, last, (first - last) / first
}
