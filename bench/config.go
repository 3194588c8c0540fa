package bench

import (
	"context"
	"errors"
	"time"

	"github.com/tierlora/tierlora/train"
)

// RunConfig times steps of a user's own run: its model, its rows, its plan. It does not touch the run's output folder.
// A base model whose folder has no weights gets random ones, and the report says so. text is the effective
// configuration without the keys that do not affect the work.
func RunConfig(ctx context.Context, s train.Spec, o Measure, env train.Env, text string) (r Report, err error) {
	err = train.Together(ctx, s, env, func(ctx context.Context, s train.Spec, env train.Env) error {
		one, err := runConfig(ctx, s, o.of(env), env, text)
		if rank, _ := env.Rank(); rank == 0 {
			r = one
		}
		return err
	})
	return r, err
}

// of returns what a rank measures: all ranks take the same steps, and the first one reports them.
func (o Measure) of(env train.Env) Measure {
	rank, ranks := env.Rank()
	if o.ranks = ranks; rank > 0 {
		o.Trace, o.follows = nil, true
	}
	return o
}

func runConfig(ctx context.Context, s train.Spec, o Measure, env train.Env, text string) (r Report, err error) {
	began := time.Now()
	env.WithoutWeights, env.StandIn = true, newRandomWeights()
	run, err := train.Open(ctx, s, env)
	if err != nil {
		return r, err
	}
	released := false
	defer func() {
		if !released {
			err = errors.Join(err, run.Release())
		}
		err = errors.Join(err, run.Close())
	}()
	on, plan, step := run.On(), run.Plan(), run.Step()
	r = newReport(on, env.Env)
	r.Ranks = o.reported()
	r.Shape, r.Work, r.Layout, r.Held, r.Parts = plan.Model, hashOf(text), plan.Checkpointing, plan.TotalBytes, plan.Categories
	r.Batch, r.Length, r.Trained, r.Peak, r.Kernels, r.Notes = plan.Batch, plan.SequenceLength, plan.TrainedParameters, step.Plan.Peak(), step.Plan.Calls(), plan.Notes
	if run.Declared() {
		r.Notes = append(r.Notes, "the base model's weights are random: its folder holds none")
	}
	r.Load = time.Since(began).Seconds()
	b := subject{pipeline: run.Pipeline(), async: on.Capabilities().Async, next: run.Next}
	if err := b.measure(ctx, o, &r); err != nil {
		return r, err
	}
	released = true
	if err := run.Release(); err != nil { // frees memory for the ceilings
		return r, err
	}
	return r, r.ceilings(on, o)
}
