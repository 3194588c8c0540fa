package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/fit"
	"github.com/tierlora/tierlora/train/replay"
)

// Verify trains the first steps of a run again in a temporary folder, and compares losses and micro-batches with the
// run's manifest bit for bit. After the last step it compares the adapter too. It stops at the first difference.
func Verify(ctx context.Context, s Spec, env Env, was replay.Manifest, steps int) (_ replay.Verdict, err error) {
	if len(was.Evidence) == 0 { // the manifest is an older program's
		was.Evidence = []replay.Evidence{{Step: was.Steps, Losses: was.Losses}}
	}
	if first := was.Evidence[0].Step; steps < first {
		return replay.Verdict{}, fmt.Errorf("%s says nothing of the losses before step %d: verify %d steps or more",
			replay.ManifestFile, first, first)
	}
	if s.OutputDir, err = os.MkdirTemp("", "trainer-verify-"); err != nil {
		return replay.Verdict{}, fmt.Errorf("make a folder for the replay: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.OutputDir)) }()
	// world is the number of ranks of the run's last part, which the configuration has too; share belongs to its first
	// part.
	world, share := 1, 1
	if plans := was.Plans; len(plans) > 0 {
		env.pieces, world = plans[0].Pieces, max(world, plans[len(plans)-1].Ranks)
		share = max(share, plans[0].Context)
		// The numbers of the parts from this one on have other bits.
		if i := slices.IndexFunc(plans, func(p replay.PartPlan) bool { return !p.SameBits(plans[0]) }); i > 0 {
			steps = min(steps, plans[i].FirstStep-1)
		}
		if world > share || plans[0].Ranks > share {
			env.lossRows, s.VRAM, s.Training.OnOOM = &plans[0].LossRows, "", fit.OnOOMStop
		}
	}
	s = s.unrecorded() // grad_norm_steps and samples stay, because the plan includes their memory
	s.Training.EvalOnStart, env.silent = false, true
	if s, err = s.spread(world); err != nil {
		return replay.Verdict{}, err
	}
	s = s.alone(world)
	s.Devices, s.Training.ContextParallelSize = fmt.Sprint(share), share
	var v replay.Verdict
	done := false
	// Any number of devices without context parallelism gives the numbers of one device.
	err = Together(ctx, s, env, func(ctx context.Context, s Spec, env Env) error {
		one, err := verify(ctx, s, env, was, steps)
		if env.team.leads() {
			v, done = one, err == nil
		}
		return err
	})
	if done { // the other ranks end with an error after the first has found a difference
		err = nil
	}
	return v, err
}

// unrecorded returns the same run without evaluations, checkpoints, trackers and expectations.
func (s Spec) unrecorded() Spec {
	c := &s.Training
	c.Resume, c.SaveSteps, c.EvalSteps, c.SavesPerEpoch, c.EvalsPerEpoch, c.ReportTo = "", 0, 0, 0, 0, nil
	c.RecordWindows, s.Expect, c.Ends = false, Expect{}, Ends{LossWatchdogPatience: c.LossWatchdogPatience}
	return s
}

// verify runs Verify on one rank of a context-parallel group.
func verify(ctx context.Context, s Spec, env Env, was replay.Manifest, steps int) (replay.Verdict, error) {
	on, err := session.OpenMachine(s.Device, s.Training.Numbers(), env.Env)
	if err != nil {
		return replay.Verdict{}, err
	}
	leave, err := env.Join(on)
	if err != nil {
		return replay.Verdict{}, errors.Join(err, on.Close())
	}
	defer leave()
	return verifyOn(ctx, s, env, was, steps, on)
}

// verifyOn verifies on an open machine, which it closes.
func verifyOn(ctx context.Context, s Spec, env Env, was replay.Manifest, steps int,
	on graph.Machine) (replay.Verdict, error) {
	p, err := prepareOn(ctx, s, env, on)
	if err != nil {
		return replay.Verdict{}, err
	}
	defer p.Close() //nolint:errcheck // read only
	r, err := p.start(ctx)
	if err != nil {
		return replay.Verdict{}, err
	}
	return replay.Verify(ctx, replayed{r}, was, steps)
}

// replayed is a run that is trained again for a comparison. It implements replay.Run.
type replayed struct{ run *running }

// Train makes the steps of the run and calls seen after each that is not skipped.
func (r replayed) Train(ctx context.Context, padded bool, seen func() error) error {
	r.run.recorder.asOlder = padded
	r.run.recorder.observers = append(r.run.recorder.observers, onStep{see: seen})
	return r.run.explain(r.run.loop(ctx))
}

// Evidence returns the evidence of the run up to its newest step.
func (r replayed) Evidence() replay.Evidence { return r.run.recorder.evidence() }

// Leads reports whether this rank sees what all ranks train.
func (r replayed) Leads() bool { return r.run.env.team.leads() }

// Manifest returns the manifest of the run up to its newest step.
func (r replayed) Manifest(ctx context.Context) (replay.Manifest, error) { return r.run.manifest(ctx) }

// AdapterSum returns the SHA-256 of the adapter's weights, as the run would write them.
func (r replayed) AdapterSum() (string, error) {
	return r.run.saver.weightsSum()
}

// End frees the memory.
func (r replayed) End(err error) error { return r.run.end(err) }

// onStep is an Observer that only handles steps.
type onStep struct {
	Silent
	see func() error
}

// Step calls see.
func (o onStep) Step(StepInfo) error { return o.see() }
