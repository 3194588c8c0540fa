package train

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// Opened is a run with its data, plans and memory, before the first step. Programs that time steps use it; it saves
// nothing.
type Opened struct {
	running *running
	leave   func() // leaves the other ranks
}

// Open prepares and loads a run in a temporary folder that Close removes. It ignores training.resume. On several
// devices Together calls it.
func Open(ctx context.Context, s Spec, env Env) (_ *Opened, err error) {
	if s.OutputDir, err = os.MkdirTemp("", "trainer-open-"); err != nil {
		return nil, fmt.Errorf("make a folder for the run: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(s.OutputDir))
		}
	}()
	s = s.unrecorded()
	s.Training.SamplePrompts, s.Training.EvalTasks = nil, nil
	env.Config = nil
	on, err := session.OpenMachine(s.Device, s.Training.Numbers(), env.Env)
	if err != nil {
		return nil, err
	}
	leave, err := env.Join(on)
	if err != nil {
		return nil, errors.Join(err, on.Close())
	}
	p, err := prepareOn(ctx, s, env, on)
	if err != nil {
		leave()
		return nil, err
	}
	r, err := p.start(ctx)
	if err != nil {
		err = errors.Join(err, p.Close())
		leave()
		return nil, err
	}
	return &Opened{r, leave}, nil
}

// Next returns the next step's micro-batches and learning rate.
func (o *Opened) Next() (step.Window, error) {
	w, err := o.running.nextWindow()
	if err != nil {
		return step.Window{}, err
	}
	o.running.recorder.state.GlobalStep++
	for _, b := range w.all {
		w.Tokens += b.Tokens
	}
	return w.Window, nil
}

// Pipeline returns the pipeline that queues the steps.
func (o *Opened) Pipeline() *step.Pipeline { return o.running.pipeline }

// Step returns the plan for the largest micro-batches.
func (o *Opened) Step() *step.Step { return o.running.step }

// On returns the machine, which is open until Close.
func (o *Opened) On() graph.Machine { return o.running.On }

// Plan returns the planned memory of the run and the layout of its steps.
func (o *Opened) Plan() PlanReport { return o.running.planReport() }

// Declared reports whether the base model's weights are stand-ins.
func (o *Opened) Declared() bool { return o.running.Base.Declared }

// Release frees the memory and leaves the machine open.
func (o *Opened) Release() error { return o.running.end(nil) }

// Close frees what Release left.
func (o *Opened) Close() error {
	err := errors.Join(o.running.prepared.Close(), os.RemoveAll(o.running.spec.OutputDir))
	o.leave()
	return err
}
