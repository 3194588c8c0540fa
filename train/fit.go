package train

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/session"
)

// checkpointing are the modes that a value of gradient_checkpointing allows, in the order they are tried.
var checkpointing = map[string][]graph.Recompute{
	"auto":      {graph.KeepAll, graph.RecomputeCheap, graph.RecomputeLayers, graph.Offload},
	"none":      {graph.KeepAll},
	"selective": {graph.RecomputeCheap},
	"full":      {graph.RecomputeLayers},
	"offload":   {graph.Offload},
}

// shapes are the micro-batches of training, and of validation where there is one.
type shapes struct {
	train, eval session.Shape
	several     bool // micro-batches in a step
}

// Layouts are those that a configuration allows on a machine, one of so many ranks, fastest first: dequantised weights while
// nothing need be recomputed, the base model in slices where it does not fit whole.
func Layouts(c Config, quantised bool, on graph.Machine, ranks int) []session.Layout {
	modes := checkpointing[c.GradientCheckpointing]
	if !on.Capabilities().SeparateHost && len(modes) > 1 {
		modes = modes[:len(modes)-1] // there host memory is the memory in question
	}
	var all []session.Layout
	if quantised && c.DequantisedWeights == "auto" && on.Capabilities().KeepDequantised {
		all = append(all, session.Layout{Dequantised: true, Recompute: modes[0]})
	}
	for _, mode := range modes {
		always := c.DequantisedWeights == "always"
		all = append(all, session.Layout{Dequantised: quantised && always, Experts: always, Recompute: mode})
	}
	return inSlices(all, c, ranks)
}

// inSlices adds the layouts in which each of so many ranks holds a slice of the base model, behind those in which each holds it
// whole. Weights that are dequantised by choice are not sent about.
func inSlices(all []session.Layout, c Config, ranks int) []session.Layout {
	if c.BaseSharding == "never" || ranks < 2 {
		return all
	}
	var sharded []session.Layout
	for _, l := range all {
		if !l.Dequantised || c.DequantisedWeights == "always" {
			l.Shards = ranks
			sharded = append(sharded, l)
		}
	}
	if c.BaseSharding == "always" {
		return sharded
	}
	return append(all, sharded...)
}

// CheckSharding refuses slices of the base model for one rank.
func CheckSharding(c Config, ranks int) error {
	if c.BaseSharding == "always" && ranks < 2 {
		return errors.New("base_sharding: always needs several devices, and this run has one: say how many by devices, or write auto")
	}
	return nil
}

func (p *prepared) layouts(c Config) []session.Layout {
	all := Layouts(c, p.Net.Scheme != nil, p.On, p.world())
	if rows := p.env.lossRows; rows != nil {
		for i := range all {
			all[i].LossRows = *rows
		}
	}
	return all
}

// sharded tells whether the ranks hold slices of the base model, so that none can run it without the others.
func (p *prepared) sharded() bool { return p.found.Layout.Sharded() }

// together is sharded, or that ranks share the tokens of rows.
func (p *prepared) together() bool { return p.sharded() || p.spec.Training.sharing() > 1 }

// fit plans the step in the first allowed layout that fits the memory the run may hold. Where none does, on_oom says
// what then. It returns the micro-batches that fit.
func (p *prepared) fit(z shapes) (shapes, error) {
	if err := CheckSharding(p.spec.Training, p.world()); err != nil {
		return z, err
	}
	limit, known, err := p.mayHold()
	if err != nil {
		return z, err
	}
	p.limit = -1
	if known {
		p.limit = max(limit, 0) // less than nothing is free where the driver's own share is
	}
	if err := p.take(p.layouts(p.spec.Training), p.limit, z); err != nil || p.found.Fits {
		return z, err
	}
	if p.spec.Training.OnOOM != oomShrink || limit <= 0 {
		return z, p.refuse(limit, z)
	}
	whole := p.found
	if z, err = p.shrink(p.limit); err != nil {
		return z, err
	}
	if !p.found.Fits {
		return z, p.refuse(limit, z)
	}
	p.tellShrunk(fmt.Sprintf("the run does not fit as configured: with %v the plan holds %s, %s may be held",
		whole.Layout, session.FormatBytes(whole.Need.Total()), session.FormatBytes(limit)))
	return z, nil
}

// search looks among layouts for the first that fits into limit bytes; below 0 the first.
func (p *prepared) search(layouts []session.Layout, limit int64, z shapes) (session.Search[steps], error) {
	net, _, err := p.Net.Declared()
	if err != nil {
		return session.Search[steps]{}, err
	}
	rows := min(p.On.Capabilities().LogitRows, max(z.train.Tokens, z.eval.Tokens))
	if p.env.lossRows != nil {
		rows = 0 // no other number of them
	}
	return session.Search[steps]{
		Layouts: layouts, Limit: limit,
		Try:    func(l session.Layout) (session.Planned[steps], error) { return p.planIn(l, z) },
		Layers: p.Base.Config.NumLayers, Linears: net.Quantised(),
		LossRows: rows, Overlaps: p.On.Capabilities().Overlap,
	}, nil
}

// chooseBudgets chooses at most so many token budgets.
func (p *prepared) chooseBudgets(most int) {
	p.loader.ChooseBudgets(p.total*p.accumulate()*p.groups(), most)
}

// morePadding is how much more padding is as bad as a leaner layout.
const morePadding = 0.03

// leaveForGraphs leaves memory to the driver for the captured graphs of the smaller token budgets: by fewer of them where
// that costs little padding, else by a leaner layout, else by fewer all the same.
func (p *prepared) leaveForGraphs(search session.Search[steps]) error {
	calls, more := 0, len(p.loader.Shape().Budgets)-1
	for _, n := range p.found.Step.train.Plan.Calls() {
		calls += n
	}
	each := p.On.Capabilities().CapturedCall * int64(calls)
	free, known, err := p.free()
	if err != nil || !known || each == 0 || more == 0 || p.found.Need.Total()+int64(more)*each <= free {
		return err
	}
	all := p.loader.Efficiency(0)
	p.chooseBudgets(1 + int(max(free-p.found.Need.Total(), 0)/each))
	if all-p.loader.Efficiency(0) <= morePadding {
		return nil
	}
	if search.Limit = min(search.Limit, free-int64(more)*each); search.Limit < 0 {
		return nil
	}
	lean, err := search.Run()
	if err == nil && lean.Fits {
		p.found = lean
		p.chooseBudgets(dataset.MaxBudgets)
	}
	return err
}

// planIn plans the step, and the evaluation where there is one, in one layout.
func (p *prepared) planIn(l session.Layout, z shapes) (session.Planned[steps], error) {
	planned := session.Planned[steps]{Layout: l}
	nw, s := p.Net, &planned.Step
	nw.Layout = l
	whole := nw // what is generated is not shared
	var err error
	nw.Ranks = p.spec.Training.sharing()
	if z.eval.Tokens > 0 {
		if s.eval, err = infer.PlanEval(nw, z.eval, p.On); err != nil {
			return planned, err
		}
	}
	if p.sampler != nil {
		if s.sample, err = infer.PlanSamples(whole, p.sampler.longest, z.train.MaxLen, p.On); err != nil {
			return planned, err
		}
	}
	if s.train, err = PlanStep(nw, z.train, p.spec.Training, p.summing(z), p.On); err != nil {
		return planned, err
	}
	if err := p.Base.Check(s.train.Net); err != nil {
		return planned, err
	}
	planned.Need, err = graph.Need(s.plans()...)
	return planned, err
}

// planSmaller plans the step for the smaller token budgets, in the layout of the largest. A budget whose plan would take
// memory of its own is left out.
func (p *prepared) planSmaller(z shapes) error {
	budgets := p.loader.Shape().Budgets
	smaller := budgets[:len(budgets)-1]
	planned := make([]*Step, len(smaller))
	problems := make([]error, len(smaller))
	var all sync.WaitGroup
	for i, tokens := range smaller {
		all.Go(rescue.Wrap(func() {
			shape := z.train
			shape.Tokens = tokens
			nw := p.Net
			nw.Ranks = p.spec.Training.sharing()
			planned[i], problems[i] = PlanStep(nw, shape, p.spec.Training, p.summing(z), p.On)
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
		if need.Total() <= p.found.Need.Total() && step.Plan.GathersAs(s.train.Plan) { // ranks may have other budgets at a time
			*s, kept = more, append(kept, step.Tokens)
		}
	}
	p.loader.UseBudgets(append(kept, z.train.Tokens))
	return nil
}

// summing is how a step's micro-batches come together.
func (p *prepared) summing(z shapes) Summing {
	window := p.world()
	if z.several {
		window = max(window, 2)
	}
	return SummingOf(window, p.world())
}

// refuse says what is missing, and what would fit.
func (p *prepared) refuse(limit int64, z shapes) error {
	need := p.found.Need
	hint := ""
	if limit <= 0 { // what is free is less than what the driver or system needs for itself
		limit = 0
		hint = "other programs hold the memory of " + p.On.Name() + ": wait for them, end them, raise the limit of a container or job, or use another device"
	} else {
		var err error
		if hint, err = p.suggest(limit, z); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: with %v the plan holds %s, %s may be held, %s too much; %s", session.ErrDoesNotFit, p.found.Layout,
		session.FormatBytes(need.Total()), session.FormatBytes(limit), session.FormatBytes(need.Total()-limit), hint)
}

// suggest looks for the nearest configuration that fits: another layout, fewer rows, shorter ones.
func (p *prepared) suggest(limit int64, z shapes) (string, error) {
	var need graph.Bytes
	fits := func(l session.Layout, z shapes) (bool, error) {
		planned, err := p.planIn(l, z)
		need = planned.Need
		return err == nil && need.Total() <= limit, err
	}
	c := p.spec.Training
	lean := p.found.Layout
	auto := session.Layout{Recompute: graph.Offload, LossRows: session.LeastLossRows, Shards: lean.Shards}
	if !p.On.Capabilities().SeparateHost {
		auto.Recompute = graph.RecomputeLayers
	}
	if c.GradientCheckpointing != "auto" || lean.Dequantised {
		if ok, err := fits(auto, z); ok || err != nil {
			keys := "training.gradient_checkpointing: auto"
			if lean.Dequantised {
				keys += " with training.dequantised_weights: auto"
			}
			return fmt.Sprintf("%s would fit, in as little as %s", keys, session.FormatBytes(need.Total())), err
		}
	}
	if slices := auto; c.BaseSharding == "never" && p.world() > 1 {
		slices.Shards = p.world()
		if ok, err := fits(slices, z); ok || err != nil {
			return fmt.Sprintf("training.base_sharding: auto would fit, in as little as %s on each device", session.FormatBytes(need.Total())), err
		}
	}
	B, T := p.loader.Shape().Sequences, p.loader.Shape().T
	if hint := p.suggestSharing(limit, auto, z, B); hint != "" {
		return hint, nil
	}
	for _, l := range []struct {
		layout session.Layout
		with   string
	}{{lean, ""}, {auto, " with training.gradient_checkpointing: auto"}} {
		for rows := B / 2; rows >= 1; rows /= 2 {
			fewer, err := p.withRows(rows)
			if err != nil {
				return "", err
			}
			if ok, err := fits(l.layout, fewer); ok || err != nil {
				hint := fmt.Sprintf("training.batch_size: %d%s would fit, in %s (with gradient_accumulation_steps: %d for about the same step)",
					rows, l.with, session.FormatBytes(need.Total()), (c.GradientAccumulationSteps*B+rows-1)/rows)
				if c.OnOOM != oomShrink {
					hint += "; training.on_oom: shrink does so by itself"
				}
				return hint, err
			}
		}
		if c.GradientCheckpointing == "auto" {
			break
		}
	}
	if hint := p.suggestOptimizer(limit, auto, z); hint != "" {
		return hint, nil
	}
	for length := T / 2; p.trains(length); length /= 2 {
		if ok, err := fits(lean, z.of(1, length)); ok || err != nil {
			return fmt.Sprintf("dataset.max_length: %d and training.batch_size: 1 would fit, in %s", length, session.FormatBytes(need.Total())), err
		}
	}
	hint := fmt.Sprintf("no batch is small enough: weights, adapter and optimizer alone take %s; use a model with fewer parameters", session.FormatBytes(need.Total()-need.Arena))
	if p.Net.Scheme == nil {
		hint += ", or adapter: qlora"
	}
	if lean.Sharded() {
		hint += fmt.Sprintf(", or more devices than %d", lean.Shards)
	}
	return hint, nil
}

// withRows are the shapes of the run with fewer rows in a micro-batch, and as many rows in all.
func (p *prepared) withRows(rows int) (shapes, error) {
	of := *p
	var err error
	if of.loader, err = p.trainLoader(p.data, rows); err != nil {
		return shapes{}, err
	}
	batches := p.total * p.window()
	of.loader.ChooseBudgets((batches*p.loader.Shape().Sequences+rows-1)/rows, dataset.MaxBudgets)
	if err := of.loadValidation(rows); err != nil {
		return shapes{}, err
	}
	z := p.shapesOf(of.loader, of.val)
	z.several = true // as many rows in a step as before
	return z, nil
}

// trains tells whether rows cut to a length leave anything to train on.
func (p *prepared) trains(length int) bool {
	for i := range p.data.Train.Len() {
		row := p.data.Train.Row(i)
		for _, l := range row.Labels[:min(max(length, 0), len(row.Labels))] {
			if l != dataset.Ignore {
				return true
			}
		}
	}
	return false
}

// of is the same with at most so many rows of so many tokens.
func (z shapes) of(rows, length int) shapes {
	less := func(x session.Shape) session.Shape {
		if x.Tokens == 0 {
			return x
		}
		x.Tokens = min(x.Tokens, rows*length)
		x.Sequences, x.MaxLen = min(x.Sequences, x.Tokens), min(x.MaxLen, length)
		return x
	}
	return shapes{less(z.train), less(z.eval), z.several}
}
