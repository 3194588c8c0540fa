package train

import (
	"context"
	"errors"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/gradcheck"
	"github.com/tierlora/tierlora/train/objective"
)

// GradCheck computes the gradients of the run's first micro-batch on its device and compares them with float64.
func GradCheck(ctx context.Context, s Spec, env Env, o gradcheck.Options) (gradcheck.Report, error) {
	on, err := session.OpenMachine(s.Device, s.Training.Numbers(), env.Env)
	if err != nil {
		return gradcheck.Report{}, err
	}
	return gradCheckOn(ctx, s, env, o, on)
}

// gradCheckOn checks the gradients on a machine, and closes the machine.
func gradCheckOn(ctx context.Context, s Spec, env Env, o gradcheck.Options,
	on graph.Machine) (_ gradcheck.Report, err error) {
	whole := !objective.TakesParts(s.Objective())
	if whole { // as few rows as have a loss
		s.Training.BatchSize, s.Dataset.Packing = 1, false
		if objective.BatchTerm(s.Objective()) != "" {
			s.Training.BatchSize = 2
		}
	}
	p, err := openOn(ctx, s, env, on)
	if err != nil {
		return gradcheck.Report{}, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.readData(ctx); err != nil {
		return gradcheck.Report{}, err
	}
	batches, _, err := p.loader.NextWindow(1)
	if err != nil {
		return gradcheck.Report{}, err
	}
	if o, ok := s.Objective().(objective.Sampled); ok {
		window := dataset.Step{All: batches[:1], Trained: batches[0].TrainedTokens}
		if _, err := scoreWindow(&window, o); err != nil {
			return gradcheck.Report{}, err
		}
	}
	if p.Net.Start.ReadsInputs() { // gradients are checked with any numbers
		p.Net.Start = p.Net.Start.WithoutInputs()
	}
	c := p.spec.Training
	in := gradcheck.Input{
		Session: p.Session, Batch: batches[0], Step: s.Step(), LossScale: c.LossScale, LR: c.LearningRate, Seed: s.Seed,
	}
	if whole {
		in.Whole = infer.ShapeOf(p.loader)
		in.Whole.Tokens, in.Whole.Sequences = len(in.Batch.IDs), len(in.Batch.CuSeqlens)-1
	}
	return gradcheck.Run(ctx, in, o)
}
