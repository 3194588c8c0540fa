package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/replay"
	"github.com/tierlora/tierlora/train/step"
)

// ErrNotFinite is wrapped by the error of a run whose loss or gradient is not finite.
var ErrNotFinite = errors.New("loss or gradient is not finite")

// recorder counts the steps of a run, keeps the history that checkpoints save, and calls the observers.
type recorder struct {
	at        *whereabouts
	config    Config
	total     int
	logf      func(format string, args ...any)
	observers observers
	state     checkpoint.State
	progress  cursor
	result    Result
	scale     float64 // loss scale of the queued step; 0 without loss scaling
	precision fmt.Stringer
	objective objective.Objective
	began     time.Time
	world     int   // number of ranks of the run
	tokens    int64 // tokens since began
	samples   int64
	clock     stepClock
	data      dataClock
	asOlder   bool   // computes chainPadded too, for the replay of an older program's run
	padded    string // chainPadded over all steps so far
}

// cursor is what a checkpoint keeps besides tensors and the fields of checkpoint.State.
type cursor struct {
	Data     json.RawMessage `json:"data"`   // state of the windows: Place.State
	Losses   []float64       `json:"losses"` // loss of every step
	NLL      float64         `json:"nll"`    // sum of the loss over the whole run
	Trained  int64           `json:"trained_tokens"`
	SinceNLL float64         `json:"nll_since_log"`
	SinceLog int64           `json:"trained_since_log"`
	// Since has the sums of the objective's numbers since the last line of metrics.jsonl. nil = the objective divides
	// its loss by trained tokens and has no sums, so the fields above suffice.
	Since *sums `json:"since_log,omitempty"`
	// Given has the sums of the windows' numbers since the last line of metrics.jsonl.
	Given []givenSum `json:"given_since_log,omitempty"`
	// Divisor is the count over the whole run that the objective divides its loss by, if that count is not Trained.
	Divisor   int64  `json:"divisor,omitempty"`
	Optimizer int    `json:"optimizer_steps"`
	Base      string `json:"base"` // fingerprint of the base weights
	// Reference is the SHA-256 of the adapter of the reference; "" = the reference is the base model, or there is none.
	Reference string `json:"reference_adapter,omitempty"`
	// Precomputed says that the log-probabilities of the reference were computed before training.
	Precomputed bool `json:"reference_precomputed,omitempty"`
	// Rows is chainRows over all steps so far.
	Rows     string            `json:"rows_sha256,omitempty"`
	Evidence []replay.Evidence `json:"evidence,omitempty"`
	// Evaluation loss before the first step; nil = not evaluated.
	EvalBefore *float64 `json:"eval_loss_before,omitempty"`
	EvalLoss   *float64 `json:"eval_loss,omitempty"` // newest evaluation loss after a step
	// Skipped lists the steps that were left out because loss or gradient was not finite, ascending.
	Skipped []int `json:"skipped_steps,omitempty"`
	// Plans are the layouts of the run's parts. Each differs from the one before.
	Plans []replay.PartPlan `json:"plans,omitempty"`
	// BestOf is the training.metric_for_best_model that the best checkpoint so far was chosen by; "" = eval_loss.
	BestOf string `json:"best_of,omitempty"`
	// StaleEvals counts evaluations in a row without a better metric, for training.early_stopping_patience.
	StaleEvals int `json:"stale_evaluations,omitempty"`
	// HighLosses counts steps in a row with a loss above training.loss_watchdog_threshold.
	HighLosses int `json:"high_losses,omitempty"`
	// OwesEval says that the run was interrupted before the evaluation of its last step.
	OwesEval bool `json:"owes_evaluation,omitempty"`
	// Run has the keys of the configuration that decide the run's numbers (see meaning); nil in checkpoints of older
	// programs.
	Run map[string]string `json:"run,omitempty"`
}

// sums are sums over steps: of the objective's numbers that have one, and of the steps' counts.
type sums struct {
	Of   []float64        `json:"sums"`
	Over objective.Counts `json:"over"`
}

// uses records the layout of the steps from here on.
func (r *recorder) uses(p replay.PartPlan) {
	plans := r.progress.Plans
	if n := len(plans); n > 0 {
		last := plans[n-1]
		if last.FirstStep = p.FirstStep; last == p {
			return
		}
		if plans[n-1].FirstStep == p.FirstStep { // no step has used the previous layout
			plans = plans[:n-1]
		}
	}
	r.progress.Plans = append(plans, p)
}

// step returns the number of the last finished step.
func (r *recorder) step() int { return r.state.GlobalStep }

// begin starts the clocks.
func (r *recorder) begin() {
	r.began = time.Now()
	r.clock.resume(r.began)
}

// resumeClock restarts the time of a step after an evaluation or a save.
func (r *recorder) resumeClock() { r.clock.resume(time.Now()) }

// record counts a finished step, and logs it if a line is due. It returns ErrNotFinite and counts nothing if loss or
// norm is not finite.
func (r *recorder) record(w *pendingWindow, n step.Numbers) error {
	r.clock.step(n.Done)
	before := r.scale
	r.scale = n.Scale
	overflowed := n.Scale < before
	if !finite(n.Loss) || !finite(n.Norm) && !overflowed {
		return fmt.Errorf("step %d: %w: loss %v, gradient norm %v", w.Number, ErrNotFinite, n.Loss, n.Norm)
	}
	if overflowed {
		r.logf("step %d: the gradient overflowed %v and was left out; loss scale %v, was %v", w.Number,
			r.precision, n.Scale, before)
	} else {
		r.progress.Optimizer++
	}
	tokens := r.count(w)
	p := &r.progress
	p.Losses = append(p.Losses, n.Loss)
	r.countLoss(n.Loss)
	r.add(w.Counts(), n)
	r.result.Losses = p.Losses
	r.noteEvidence(w)

	clippedNorm := clipped(n.Norm, r.config.MaxGradNorm)
	if overflowed {
		clippedNorm = 0 // the update did not use the gradient
	}
	values := Values(objective.Values(r.objective.Numbers(), n.Loss, n.Sums, w.Counts()))
	values = append(values, r.given(w.values)...)
	info := StepInfo{Numbers: values, Step: w.Number, Epoch: w.epoch, Loss: n.Loss,
		MeanLoss: p.SinceNLL / float64(p.SinceLog), GradNorm: n.Norm, LearningRate: w.LR, Tokens: tokens,
		GradNormClipped: clippedNorm, TensorNorms: n.Norms,
		TokensPerSecond: float64(r.tokens) / max(r.clock.spent, time.Microsecond).Seconds(),
		LossScale:       n.Scale, Skipped: n.Skipped}
	if w.Number%r.config.LoggingSteps == 0 || w.Number == r.total {
		info.Logged = r.line(info)
		if err := r.keep(*info.Logged); err != nil {
			return err
		}
	}
	return r.observers.each(func(o Observer) error { return o.Step(info) })
}

// add adds a step's loss and sums to those of the run and to those since the last line of metrics.jsonl.
func (r *recorder) add(counts objective.Counts, n step.Numbers) {
	p, by := &r.progress, r.objective.Divisor()
	divisor := counts.Of(by)
	nll := n.Loss * float64(divisor)
	p.NLL, p.Trained, p.SinceNLL, p.SinceLog = p.NLL+nll, p.Trained+counts.Tokens, p.SinceNLL+nll, p.SinceLog+divisor
	if by != objective.Tokens {
		p.Divisor += divisor
	}
	if by == objective.Tokens && len(n.Sums) == 0 {
		return
	}
	if p.Since == nil || len(p.Since.Of) != len(n.Sums) {
		p.Since = &sums{Of: make([]float64, len(n.Sums))}
	}
	p.Since.Over.Add(counts)
	for i, x := range n.Sums {
		p.Since.Of[i] += x
	}
}

// valuesSince returns the objective's numbers over the steps since the last line of metrics.jsonl, whose mean loss is
// given.
func (r *recorder) valuesSince(loss float64) Values {
	since := r.progress.Since
	if since == nil {
		since = &sums{Over: objective.Counts{Tokens: r.progress.SinceLog}}
	}
	return Values(objective.Values(r.objective.Numbers(), loss, since.Of, since.Over))
}

// givenSum is the sum of a number of windows over the steps that have it.
type givenSum struct {
	Name  string  `json:"name"`
	Sum   float64 `json:"sum"`
	Steps int     `json:"steps"`
}

// given adds a window's numbers to the sums since the last line of metrics.jsonl, and returns them.
func (r *recorder) given(values []dataset.Value) (own Values) {
	p := &r.progress
	for _, v := range values {
		own = append(own, objective.Value(v))
		i := slices.IndexFunc(p.Given, func(s givenSum) bool { return s.Name == v.Name })
		if i < 0 {
			i, p.Given = len(p.Given), append(p.Given, givenSum{Name: v.Name})
		}
		p.Given[i].Sum, p.Given[i].Steps = p.Given[i].Sum+v.Value, p.Given[i].Steps+1
	}
	return own
}

// givenSince returns the means of the windows' numbers over the steps since the last line of metrics.jsonl.
func (r *recorder) givenSince() (all Values) {
	for _, s := range r.progress.Given {
		all = append(all, objective.Value{Name: s.Name, Value: s.Sum / float64(s.Steps)})
	}
	return all
}

// skip counts a step that was left out because it is not finite.
func (r *recorder) skip(w *pendingWindow) {
	r.progress.Skipped = append(r.progress.Skipped, w.Number)
	r.result.Skipped = r.progress.Skipped
	r.count(w)
	r.noteEvidence(w)
}

// skippedBefore returns the number of consecutive skipped steps right before a step.
func (r *recorder) skippedBefore(step int) int {
	skipped, n := r.progress.Skipped, 0
	for n < len(skipped) && skipped[len(skipped)-1-n] == step-1-n {
		n++
	}
	return n
}

// count records a step's number and tokens.
func (r *recorder) count(w *pendingWindow) (tokens int64) {
	for _, b := range w.all {
		tokens += int64(b.Tokens)
		r.samples += int64(len(b.Rows))
	}
	r.tokens += tokens
	r.state.GlobalStep, r.state.Epoch = w.Number, w.epoch
	r.state.TokensSeen += tokens
	r.result.Steps = w.Number
	r.at.stepDone(w.Number, r.total, time.Now())
	return tokens
}

// line returns the line of metrics.jsonl about the steps since the last one.
func (r *recorder) line(s StepInfo) *StepMetrics {
	p := &r.progress
	values := append(r.valuesSince(s.MeanLoss), r.givenSince()...)
	p.SinceNLL, p.SinceLog, p.Since, p.Given = 0, 0, nil, nil
	return &StepMetrics{
		Step: s.Step, Epoch: s.Epoch, Loss: s.MeanLoss, Numbers: values, GradNorm: s.GradNorm,
		GradNormClipped: s.GradNormClipped,
		LearningRate:    s.LearningRate, TokensSeen: r.state.TokensSeen,
		TokensPerSecond: s.TokensPerSecond / float64(max(r.world, 1)), DataMs: r.data.line(),
		Seconds: time.Since(r.began).Seconds(), ResumedFrom: r.result.Resumed,
		TokensTotal: r.state.TokensSeen, TokensTrainable: p.Trained, MemoryGiB: float64(r.result.HeldBytes) / (1 << 30),
		LossScaling: scalingMetrics(s.LossScale, s.Skipped), SkippedSteps: skippedMetrics(len(p.Skipped)),
	}
}

// evaluated records an evaluation and reports whether it is the best so far.
func (r *recorder) evaluated(e EvalMetrics) (best bool, err error) {
	r.progress.OwesEval = false
	if err := r.keep(e); err != nil {
		return false, err
	}
	if e.Step == 0 { // no checkpoint belongs to it, so it cannot be the best one
		r.progress.EvalBefore, r.result.EvalBefore = &e.Loss, &e.Loss
		return false, r.observers.each(func(o Observer) error { return o.Eval(e) })
	}
	r.progress.EvalLoss, r.result.EvalLoss = &e.Loss, &e.Loss
	key := r.config.MetricForBestModel
	r.progress.BestOf = ""
	if key != EvalLoss {
		r.progress.BestOf = key
	}
	number, _, _ := numberOf(r.objective, key)
	v, ok := e.value(key)
	if !ok {
		return false, fmt.Errorf("training.metric_for_best_model: the evaluation after step %d reported no %s", e.Step,
			key)
	}
	r.countEvaluation(v, number.HigherIsBetter)
	return r.state.Better(v, number.HigherIsBetter), r.observers.each(func(o Observer) error { return o.Eval(e) })
}

// answered records a metric of a task.
func (r *recorder) answered(t TaskMetrics) error {
	if err := r.keep(t); err != nil {
		return err
	}
	return r.observers.each(func(o Observer) error {
		if w, ok := o.(TaskWatcher); ok {
			return w.Task(t)
		}
		return nil
	})
}

// keep adds a line of metrics.jsonl to the history that checkpoints save.
func (r *recorder) keep(line any) error {
	data, err := encodeLine(line)
	if err != nil {
		return fmt.Errorf("keep the metrics of step %d: %w", r.step(), err)
	}
	r.state.LogHistory = append(r.state.LogHistory, json.RawMessage(data))
	return nil
}

// endLine returns the line about the whole run.
func (r *recorder) endLine() *EndMetrics {
	took := r.result.Duration.Seconds()
	return &EndMetrics{Step: r.step(), Epoch: r.state.Epoch, Loss: r.result.MeanLoss, Runtime: took,
		SamplesPerSecond: float64(r.samples) / took, StepsPerSecond: float64(r.step()-r.result.Resumed) / took,
		DataSeconds: r.data.total()}
}

// sum writes the run's totals so far into the result.
func (r *recorder) sum() {
	p := r.progress
	if len(r.data.ms) > 0 {
		ms := median(r.data.ms)
		r.result.DataMs = &ms
	}
	if !r.began.IsZero() {
		r.result.Duration = time.Since(r.began)
	}
	r.result.Tokens, r.result.StepMs = r.state.TokensSeen, r.clock.times()
	divisor := p.Trained
	if p.Divisor > 0 {
		divisor = p.Divisor
	}
	if divisor > 0 {
		r.result.MeanLoss = p.NLL / float64(divisor)
	}
	if n := len(p.Losses); n > 0 {
		r.result.FirstLoss, r.result.LastLoss = p.Losses[0], p.Losses[n-1]
	}
}

func clipped(norm, most float64) float64 {
	if most > 0 {
		return math.Min(norm, most)
	}
	return norm
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
