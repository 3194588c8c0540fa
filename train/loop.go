package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/train/step"
)

// loop runs the steps. A step, from top to bottom: take the micro-batches of an optimizer step; queue forward and
// backward of each, gradients and loss adding up; finish the previous step, whose results have arrived; clip and
// update. Before an evaluation or a save, and after the last step, the loop waits for the step's results at once.
func (r *running) loop(ctx context.Context) error {
	if err := r.owedEvaluation(ctx); err != nil {
		return r.stopped(err, r.windows.State())
	}
	if r.evaluatesFirst() {
		if _, err := r.evaluate(ctx); err != nil {
			return r.stopped(err, r.windows.State())
		}
	}
	if r.recorder.step() == 0 {
		if err := r.sample(ctx); err != nil {
			return err
		}
	}
	if err := r.env.team.meet("what comes before the first step"); err != nil {
		return err
	}
	r.recorder.begin()
	for r.recorder.step() < r.total && r.recorder.endsEarly() == "" {
		if err := ctx.Err(); err != nil {
			return err
		}
		next, err := r.nextWindow()
		if errors.Is(err, errInterrupted) {
			return r.stop(next.before)
		}
		if err != nil {
			return r.unread(ctx, next.before, err)
		}
		step := graph.StartRangeNumber("step", next.Number)
		if err := r.pipeline.Gradients(next.Window); err != nil {
			return err
		}
		if r.pending != nil {
			r.ahead = next
			err := r.finishStep(ctx)
			r.ahead = nil
			if err != nil {
				return err
			}
			if r.mustStop() {
				return r.stop(next.before)
			}
			if why := r.recorder.endsEarly(); why != "" {
				return r.endEarly(ctx, why, next.before)
			}
		}
		if err := r.pipeline.Update(); err != nil {
			return err
		}
		r.pending = next
		if r.waitsFor(next.Number) {
			if err := r.finishStep(ctx); err != nil {
				return r.stopped(err, r.windows.State())
			}
			if r.mustStop() && r.recorder.step() < r.total {
				return r.stop(r.windows.State())
			}
		}
		step.End()
	}
	if why := r.recorder.endsEarly(); why != "" && r.recorder.step() < r.total {
		return r.endEarly(ctx, why, r.windows.State())
	}
	return r.finish(ctx)
}

// finishStep waits for the results of the pending step, records them, and evaluates and saves if either is due.
func (r *running) finishStep(ctx context.Context) error {
	w := r.pending
	r.pending = nil
	numbers, err := r.pipeline.Numbers()
	// The numbers may come from collective operations that were abandoned.
	if lost := r.env.team.ended(w.Number); lost != nil {
		return lost
	}
	if err == nil {
		err = r.at.check()
	}
	if err != nil {
		return err
	}
	r.stopAsked = r.stopAsked || numbers.Stop
	updates := r.recorder.progress.Optimizer
	if err = r.recorder.record(w, numbers); errors.Is(err, ErrNotFinite) {
		err = r.notFinite(ctx, w, numbers, err)
	}
	if err == nil && r.recorder.progress.Optimizer > updates && !withoutSignal(w.values) {
		err = r.zeroGradient(r.watch.look())
	}
	if err != nil {
		return err
	}
	due := r.evaluatesAfter(w.Number) || r.samplesAfter(w.Number) || r.savesAfter(w.Number)
	best := false
	if r.evaluatesAfter(w.Number) {
		if best, err = r.evaluate(ctx); err != nil {
			return err
		}
	}
	if r.samplesAfter(w.Number) {
		if err := r.sample(ctx); err != nil {
			return err
		}
	}
	if best || r.savesAfter(w.Number) {
		err = r.saver.save(r.windows.State())
	}
	if due {
		if err == nil {
			err = r.env.team.meet("an evaluation or a save")
		}
		r.recorder.resumeClock()
	}
	return err
}

// zeroGradient returns the error of a run that trains fewer tensors than configured. With training.allow_zero_gradients
// it logs a warning once and returns nil.
func (r *running) zeroGradient(err error) error {
	if !errors.Is(err, ErrZeroGradient) {
		return err
	}
	if r.spec.Training.AllowZeroGradients {
		r.env.Logf("warning: %v", err)
		return nil
	}
	return fmt.Errorf("step %d: %w", r.recorder.step(), err)
}

// pendingWindow is a queued step: what the host knows before the device returns its numbers.
type pendingWindow struct {
	step.Window
	before Place           // place of the windows before this one
	epoch  float64         // epoch after this window
	values []dataset.Value // numbers of the step that the windows know
	all    []dataset.Batch // micro-batches of all ranks, on the rank that writes; else nil
}

// nextWindow returns the micro-batches of the step after the finished or pending one.
func (r *running) nextWindow() (*pendingWindow, error) {
	defer graph.StartRange("data").End()
	w := &pendingWindow{before: r.windows.State()}
	w.Number = r.recorder.step() + 1
	if r.pending != nil {
		w.Number++
	}
	began := time.Now()
	shared := r.env.team != nil
	dealt, err := r.windows.Next()
	if err != nil {
		return w, err
	}
	w.Batches, w.Rounds, w.all, w.epoch = dealt.Batches, dealt.Rounds, dealt.All, dealt.Progress
	w.Trained, w.Sequences, w.Groups = dealt.Trained, dealt.Sequences, dealt.Groups
	w.values = dealt.Values
	if !shared {
		w.all = w.Batches
	}
	w.Stop = shared && r.interrupted()
	r.recorder.data.add(time.Since(began))
	w.LR = r.schedule(w.Number - 1)
	every := r.spec.Training.GradNormSteps
	w.Norms = every > 0 && w.Number%every == 0
	return w, nil
}

// unread ends a run whose stream fails, after saving what was trained up to that point.
func (r *running) unread(ctx context.Context, data Place, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if r.pending != nil {
		if ferr := r.finishStep(ctx); ferr != nil {
			return errors.Join(err, ferr)
		}
	}
	if r.recorder.step() == 0 {
		return err
	}
	if serr := r.saver.save(data); serr != nil {
		return errors.Join(err, serr)
	}
	return fmt.Errorf("%w\nThe state before it, after step %d, is in %s: put the data right and resume with "+
		"--resume auto", err, r.recorder.step(), r.result.Checkpoint)
}

// waitsFor reports whether nothing may be queued behind a step before its numbers are known. On a CPU it returns true,
// because the step is then complete when it is queued.
func (r *running) waitsFor(step int) bool {
	return !r.async || r.sampled || r.watch.waits() || step == r.total || r.evaluatesAfter(step) ||
		r.samplesAfter(step) || r.savesAfter(step)
}

func (r *running) evaluatesAfter(step int) bool {
	every := r.spec.Training.EvalSteps
	return r.evaluates() && (every > 0 && step%every == 0 || step == r.total)
}

// evaluatesFirst reports whether the evaluation before the first step is still due.
func (r *running) evaluatesFirst() bool {
	return r.spec.Training.EvalOnStart && r.evaluates() && r.recorder.step() == 0 &&
		r.recorder.progress.EvalBefore == nil
}

func (r *running) savesAfter(step int) bool {
	every := r.spec.Training.SaveSteps
	return every > 0 && step%every == 0 || step == r.total
}

// errInterrupted ends an evaluation after an interrupt.
var errInterrupted = errors.New("interrupted")

func (r *loaded) interrupted() bool {
	select {
	case <-r.env.Interrupted:
		return r.env.Interrupted != nil
	default:
		return false
	}
}

// mustStop reports whether the run ends after the finished step. All ranks of a run end after the same step.
func (r *running) mustStop() bool {
	if r.env.team != nil {
		return r.stopAsked
	}
	return r.interrupted()
}

// stopped calls stop if an evaluation was interrupted, and returns any other error unchanged.
func (r *running) stopped(err error, data Place) error {
	if errors.Is(err, errInterrupted) {
		return r.stop(data)
	}
	return err
}

// stop ends an interrupted run after its last finished step; data is the place of the next window.
func (r *running) stop(data Place) error {
	r.result.Stopped = true
	if err := r.saver.save(data); err != nil {
		return err
	}
	return r.env.team.meet("the last save") // a launcher may end all ranks when the first of them has ended
}
