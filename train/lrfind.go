package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/train/lrfind"
	"github.com/tierlora/tierlora/train/objective"
)

// LRFind runs a learning-rate range test: it trains o.Steps steps of the run on its data with rates that rise from
// o.From to o.To, and reports the losses. The schedule of the configuration does not apply; everything else does. The
// test runs on one device, which computes the batches of all devices of the run. The test writes nothing to the run's
// output folder.
func LRFind(ctx context.Context, s Spec, env Env, o lrfind.Options) (_ lrfind.Report, err error) {
	if err := o.Check(); err != nil {
		return lrfind.Report{}, err
	}
	if _, ok := s.Objective().(objective.Sampled); ok {
		return lrfind.Report{}, fmt.Errorf("%w: training.objective %s samples its own answers in each step; compare "+
			"the rewards of short runs instead", lrfind.ErrNoLoss, s.Training.Objective)
	}
	if s, err = s.asOne(); err != nil {
		return lrfind.Report{}, err
	}
	s.Training.MaxSteps, s.Training.GradNormSteps, s.Training.EvalOnStart = o.Steps, 0, false
	run, err := Open(ctx, s, env)
	if err != nil {
		return lrfind.Report{}, err
	}
	defer func() { err = errors.Join(err, run.Release(), run.Close()) }()
	before, err := run.lossesBefore(ctx, o.Steps)
	if err != nil {
		return lrfind.Report{}, err
	}
	curve, err := lrfind.NewCurve(o, before)
	if err != nil {
		return lrfind.Report{}, err
	}
	for more := true; more; {
		loss, err := run.stepAt(ctx, curve.Rate())
		if err != nil {
			return lrfind.Report{}, err
		}
		more = curve.Add(loss)
	}
	return curve.Report(), nil
}

// lossesBefore returns the losses of the next n steps' batches with the weights as they are, and returns to the place
// before those batches.
func (o *Opened) lossesBefore(ctx context.Context, n int) ([]float64, error) {
	place := o.running.windows.State()
	losses := make([]float64, n)
	for i := range losses {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		w, err := o.Next()
		if err != nil {
			return nil, err
		}
		if err = o.Pipeline().Gradients(w); err == nil {
			err = o.Pipeline().Skip()
		}
		numbers, nerr := o.Pipeline().Numbers()
		if err = errors.Join(err, nerr); err != nil {
			return nil, err
		}
		losses[i] = numbers.Loss
	}
	o.running.recorder.state.GlobalStep = 0
	return losses, o.running.windows.Restore(place.State)
}

// stepAt makes the next step with a learning rate and returns the loss of the weights before it.
func (o *Opened) stepAt(ctx context.Context, rate float64) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w, err := o.Next()
	if err != nil {
		return 0, err
	}
	w.LR = rate
	if err := o.Pipeline().Gradients(w); err != nil {
		return 0, err
	}
	if err := o.Pipeline().Update(); err != nil {
		return 0, err
	}
	numbers, err := o.Pipeline().Numbers()
	return numbers.Loss, err
}
