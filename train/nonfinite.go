package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/train/step"
)

// notFinite handles a step whose loss or gradient is not finite. The step has changed nothing. With on_nonfinite: skip
// the step is left out. Otherwise, or after too many skipped steps in a row, the state before the step is saved and the
// error says where it happened.
func (r *running) notFinite(ctx context.Context, w *pendingWindow, n step.Numbers, err error) error {
	if !r.baseFinite {
		if found := r.Base.CheckFinite(ctx); found != nil { // the base model is the cause, not the data or the step
			return fmt.Errorf("%w; %w", err, found)
		}
		r.baseFinite = true
	}
	if finite(n.Loss) {
		where, rerr := r.firstNotFinite(w)
		if rerr != nil {
			return errors.Join(err, rerr)
		}
		err = fmt.Errorf("%w; %s", err, where)
	}
	err = fmt.Errorf("%w; rows %s", err, strings.Join(w.rows(), " "))
	c := r.spec.Training
	if c.OnNonFinite == "skip" {
		row := r.recorder.skippedBefore(w.Number) + 1
		if c.MaxSkippedSteps == 0 || row <= c.MaxSkippedSteps {
			r.env.Logf("%v; the step is left out (training.on_nonfinite: skip)", err)
			r.recorder.skip(w)
			return nil
		}
		err = fmt.Errorf("%w; it is the %s step in a row, and training.max_skipped_steps lets %d be left out", err,
			ordinal(row), c.MaxSkippedSteps)
	}
	return r.stopNotFinite(w, err)
}

// ordinal returns a number such as 1 as "1st".
func ordinal(n int) string {
	ending := "th"
	if tens := n / 10 % 10; tens != 1 {
		switch n % 10 {
		case 1:
			ending = "st"
		case 2:
			ending = "nd"
		case 3:
			ending = "rd"
		}
	}
	return strconv.Itoa(n) + ending
}

// stopNotFinite saves the state before a step that is not finite. Its error says how to get past the step.
func (r *running) stopNotFinite(w *pendingWindow, err error) error {
	precision := ""
	if r.On.Precision().Scaled() {
		precision = ", or set training.precision: bf16 (fp32 on a GPU that lacks it): fp16 holds numbers up to 65504"
	}
	err = fmt.Errorf("%w. Look at these rows (trainer inspect data); if they are fine, lower "+
		"training.learning_rate or training.max_grad_norm%s", err, precision)
	params, serr := r.step.Trained.Snapshot(r.memory)
	if serr != nil {
		return errors.Join(err, serr)
	}
	if name := firstBadParam(params); name != "" { // an update before this step broke the tensor
		return fmt.Errorf("%w. The adapter itself is not finite, %s first, so no checkpoint is written%s", err,
			name, r.recorder.goBack())
	}
	if serr := r.saver.save(w.before); serr != nil {
		return errors.Join(err, serr)
	}
	lower := strconv.FormatFloat(r.spec.Training.LearningRate/10, 'g', 3, 64)
	other := "or with --set training.on_nonfinite=skip, which leaves such steps out"
	if r.spec.Training.OnNonFinite == "skip" {
		other = "or with a larger training.max_skipped_steps"
	}
	return fmt.Errorf("%w. The state before the step is in %s; to get past it: resume with --resume auto --set "+
		"training.learning_rate=%s, %s", err, r.result.Checkpoint, lower, other)
}

// evalNotFinite ends a run whose validation loss is not finite, because no later step would make it finite. It saves
// the state; a run that resumes from it evaluates first.
func (r *evaluating) evalNotFinite(ctx context.Context, loss float64) error {
	step := r.recorder.step()
	err := fmt.Errorf("step %d: %w: the loss on the validation rows is %v", step, ErrNotFinite, loss)
	if found := r.Base.CheckFinite(ctx); found != nil {
		return fmt.Errorf("%w; %w", err, found)
	}
	precision := ""
	if r.On.Precision().Scaled() {
		precision = ", or with training.precision: bf16 (fp32 on a GPU that lacks it): fp16 holds numbers up to 65504"
	}
	if step == 0 {
		return fmt.Errorf("%w, before anything is trained: look at these rows (trainer inspect data)%s", err, precision)
	}
	back := r.recorder.goBack()
	if r.saver.saved == step {
		back = "; begin again with a lower training.learning_rate" // the run was resumed from that checkpoint
	}
	if serr := r.saver.save(r.windows.State()); serr != nil {
		return errors.Join(err, serr)
	}
	return fmt.Errorf("%w. The state after the step is in %s, for a look at it%s%s", err,
		r.result.Checkpoint, back, precision)
}

// goBack returns advice that names an earlier checkpoint to start from, if there is one.
func (r *recorder) goBack() string {
	if r.result.Checkpoint == "" {
		return "; begin again with a lower training.learning_rate"
	}
	return fmt.Sprintf("; go back to %s with a lower training.learning_rate", r.result.Checkpoint)
}

// firstNotFinite names the tensors of a step whose gradients are not finite. The backward pass runs from the last layer
// to the first, and values that are not finite spread on the way: the last such tensor in the order of the layers is
// the origin. If memory already has the gradients of the next step, firstNotFinite recomputes both steps.
func (r *running) firstNotFinite(w *pendingWindow) (string, error) {
	if r.ahead != nil {
		if err := r.pipeline.Gradients(w.Window); err != nil {
			return "", err
		}
	}
	bad, first := 0, ""
	params := r.step.Trained.Params
	for _, p := range slices.Backward(params) {
		name := step.GradientName(p.Name)
		if err := r.memory.Get(name); err != nil {
			return "", err
		}
		x, err := r.memory.Tensor(name)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(x.F32(), notFinite32) {
			if bad++; first == "" {
				first = p.Name
			}
		}
	}
	if r.ahead != nil {
		if err := r.pipeline.Gradients(r.ahead.Window); err != nil {
			return "", err
		}
	}
	if bad == 0 {
		return "every gradient is finite, their norm is too large for float32", nil
	}
	return fmt.Sprintf("the gradients of %d of %d tensors are not finite, in the backward pass that of %s first", bad,
		len(params), first), nil
}

// firstBadParam returns the name of the first tensor with a value that is not finite; "" = none.
func firstBadParam(params []adapter.Param) string {
	for _, p := range params {
		if slices.ContainsFunc(p.Data, notFinite32) {
			return p.Name
		}
	}
	return ""
}

func notFinite32(x float32) bool { return !finite(float64(x)) }

// rows describes where the rows of a step come from.
func (w *pendingWindow) rows() []string {
	var rows []string
	for _, b := range w.all {
		rows = append(rows, b.Where()...)
	}
	return rows
}
