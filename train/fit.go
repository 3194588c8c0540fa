package train

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/fit"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// Layout returns the keys that decide which memory layouts are allowed. With frozen_gemm: fp8 it does not allow
// dequantised copies of weights: GEMMs of 8-bit floats read packed weights, so the copies would only take memory.
func (c Config) Layout() fit.Keys {
	k := fit.Keys{Checkpointing: c.GradientCheckpointing, Dequantised: c.DequantisedWeights, Sharding: c.BaseSharding,
		Offload: c.OptimizerOffload, States: c.OptimizerSharding}
	if c.FrozenGEMM == "fp8" {
		k.Dequantised = "never"
	}
	return k
}

// layouts returns the layouts that the run may take with a value of training.gradient_checkpointing, fastest first.
func (p *planner) layouts(checkpointing string) []session.Layout {
	keys := p.spec.Training.Layout()
	keys.Checkpointing = checkpointing
	if p.Net.Teacher != nil && keys.Sharding == "auto" {
		keys.Sharding = "never" // a teacher is not sharded
	}
	all := keys.Layouts(p.On.Capabilities(), p.Net.Scheme != nil, p.world)
	if rows := p.env.lossRows; rows != nil {
		for i := range all {
			all[i].LossRows = *rows
		}
	}
	return all
}

// sharded reports whether the base model is sharded, so that no rank can run it without the others.
func (p *planner) sharded() bool { return p.found.Layout.Sharded() }

// together reports whether no rank can compute without the others: the base model is sharded, or ranks share the
// tokens of rows.
func (p *planner) together() bool { return p.sharded() || p.sharing > 1 }

// problem returns what the search for the run's memory layout depends on.
func (p *planner) problem() (fit.Problem[steps], error) {
	net, _, err := p.Net.Declared()
	if err != nil {
		return fit.Problem[steps]{}, err
	}
	c := p.spec.Training
	of := fit.Problem[steps]{
		Shapes: p.Shapes(), Layouts: p.layouts, Try: p.try, Limit: p.limit,
		Checkpointing: c.GradientCheckpointing, OnOOM: c.OnOOM, BatchSize: c.BatchSize,
		Accumulation: c.GradientAccumulationSteps, BatchTerm: objective.BatchTerm(p.spec.Objective()),
		Optimizer: c.Optimizer, Sharing: p.sharing, Ranks: p.world,
		Unsharded: c.BaseSharding == "never", Offload: c.OptimizerOffload,
		States: c.OptimizerSharding, Quantised: p.Net.Scheme != nil,
		Smaller: adapter.OverQuantised(p.spec.Adapter), Layers: p.Base.Config.NumLayers,
		Linears: net.Quantised(), FixedLossRows: p.env.lossRows != nil,
		Machine: p.On, Free: p.free, Calls: steps.calls, Batches: &p.batches,
	}
	if rates, ok := graph.RatesOf(p.On); ok {
		of.Seconds = func(s steps) float64 { return step.MicroSeconds(s.train, rates) }
	}
	if of.HostLimit, err = p.freeHost(); err != nil {
		return of, err
	}
	for n := p.sharing + 1; n <= p.world; n++ {
		if p.world%n == 0 && p.checkSharing(n) == nil {
			of.Sharings = append(of.Sharings, n)
		}
	}
	return of, nil
}

// fit plans the step in the first allowed layout within the memory limit. If none is, training.on_oom decides.
func (p *planner) fit() error {
	if err := p.spec.Training.Layout().Check(p.world); err != nil {
		return err
	}
	if p.Net.Adapted && adapter.RoundsStochastically(p.Net.Adapter) {
		if err := step.CheckRounding(p.On); err != nil {
			return err
		}
	}
	limit, known, err := p.memoryLimit()
	if err != nil {
		return err
	}
	p.limit = -1
	if known {
		p.limit = max(limit, 0) // the limit is below zero if less memory is free than the driver needs
	}
	problem, err := p.problem()
	if err != nil {
		return err
	}
	chosen, err := problem.Solve()
	if err != nil {
		return err
	}
	return p.use(chosen)
}

// fitAgain plans a smaller step after a device had not enough memory for the plan that should have fitted. cause is the
// device's error.
func (p *planner) fitAgain(cause error) error {
	problem, err := p.problem()
	if err != nil {
		return err
	}
	chosen, err := problem.Again(p.found, cause)
	if err != nil {
		return err
	}
	return p.use(chosen)
}

// use adopts a choice for the run and plans its smaller token budgets.
func (p *planner) use(chosen fit.Choice[steps]) error {
	p.found = chosen
	p.Net.Layout = chosen.Layout
	if err := checkSharding(p); err != nil {
		return err
	}
	if err := checkPinned(p); err != nil {
		return err
	}
	if chosen.Shrunk != "" {
		p.tellShrunk(chosen.Shrunk)
	}
	if err := p.planSmaller(chosen.Shapes); err != nil {
		return err
	}
	return p.checkStrict()
}

// free returns the bytes that the machine has free for a plan, the minimum over all ranks. Ranks on one CPU share its
// memory.
func (p *planner) free() (bytes int64, known bool, err error) {
	bytes, known, err = p.On.FreeMemory()
	t := p.env.team
	if err != nil {
		return bytes, known, err
	}
	if t == nil { // only a plan is made
		if !p.On.Capabilities().SeparateHost {
			bytes /= int64(p.world)
		}
		return bytes, known, nil
	}
	if !p.On.Capabilities().SeparateHost {
		bytes /= int64(t.locals)
	}
	if !known {
		bytes = -1 << 62
	}
	bytes, err = t.least("the free memory", bytes)
	return bytes, known && bytes > -1<<62, err
}

// freeHost returns the bytes of host memory that each rank may take for values of its plan, the minimum over all ranks;
// 0 = not known.
func (p *planner) freeHost() (int64, error) {
	if _, runs := p.On.(graph.Joiner); !runs {
		return 0, nil // a plan for another machine
	}
	bytes, known, err := graph.NewCPU(1).FreeMemory()
	if err != nil || !known {
		bytes = 0
	}
	if t := p.env.team; t != nil {
		return t.least("the free host memory", bytes/int64(t.locals))
	}
	return bytes, nil
}

// memoryLimit returns the memory limit of the run in bytes: vram, or the free memory, without what reward models take.
func (p *planner) memoryLimit() (bytes int64, known bool, err error) {
	if p.spec.VRAM == "" {
		bytes, known, err = p.free()
		return bytes - p.rewardModelBytes(), known, err
	}
	if bytes, err = session.ParseBytes(p.spec.VRAM); err != nil {
		err = fmt.Errorf("vram: %w", err)
	}
	return bytes - p.rewardModelBytes(), true, err
}

// try plans training, evaluation and sampling for an attempt.
func (p *planner) try(a fit.Attempt) (session.Planned[steps], error) {
	planned := session.Planned[steps]{Layout: a.Layout}
	nw, z, s := p.Net, a.Shapes, &planned.Step
	nw.Layout = a.Layout
	whole := nw // samples are not context-parallel
	nw.Ranks = a.Sharing
	config := p.spec.Training
	config.Optimizer = a.Optimizer
	var err error
	if z.Eval.Tokens > 0 {
		if s.eval, err = infer.PlanEval(nw, z.Eval, p.objective(), p.On); err != nil {
			return planned, err
		}
	}
	if s.refer, err = p.planReference(nw, z); err != nil {
		return planned, err
	}
	if p.sampler != nil {
		if s.sample, err = infer.PlanSamples(whole, p.sampler.longest, z.Train.MaxLen, p.On); err != nil {
			return planned, err
		}
	}
	if s.train, err = step.Plan(nw, z.Train, config.Step(p.objective()), p.summing(z), p.On); err != nil {
		return planned, err
	}
	if err := p.planAnswers(s, whole, z.Train.MaxLen); err != nil {
		return planned, err
	}
	if err := p.Base.Check(s.train.Net); err != nil {
		return planned, err
	}
	if err := p.Net.Teacher.Check(s.train.Net); err != nil {
		return planned, err
	}
	planned.Need, err = graph.Need(s.plans()...)
	return planned, err
}

// planSmaller plans the step for the smaller token budgets, in the layout of the largest. It leaves out a budget whose
// plan would need additional memory.
func (p *planner) planSmaller(z fit.Shapes) error {
	budgets := p.loader.Shape().Budgets
	smaller := budgets[:len(budgets)-1]
	planned := make([]*step.Step, len(smaller))
	problems := make([]error, len(smaller))
	var all sync.WaitGroup
	for i, tokens := range smaller {
		all.Go(rescue.Wrap(func() {
			shape := z.Train
			shape.Tokens = tokens
			nw := p.Net
			nw.Ranks = p.sharing
			planned[i], problems[i] = step.Plan(nw, shape, p.spec.Training.Step(p.objective()), p.summing(z), p.On)
		}))
	}
	all.Wait()
	if err := errors.Join(problems...); err != nil {
		return err
	}
	s, kept := &p.found.Step, []int(nil)
	for _, step := range planned {
		more := *s
		more.smaller = append(slices.Clone(s.smaller), step)
		need, err := graph.Need(more.plans()...)
		if err != nil {
			return err
		}
		// Ranks may have different budgets in one round, so every plan must all-gather the same slices.
		if need.Total() <= p.found.Need.Total() && step.Plan.GathersAs(s.train.Plan) {
			*s, kept = more, append(kept, step.Tokens)
		}
	}
	p.loader.UseBudgets(append(kept, z.Train.Tokens))
	return nil
}

// summing returns how the step adds up the gradients of its micro-batches.
func (p *planner) summing(z fit.Shapes) step.Summing {
	window := p.world
	if z.Several {
		window = max(window, 2)
	}
	sum := step.SummingOf(window, p.world)
	sum.Rank = p.env.team.rank()
	return sum
}
