package train

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/optimizer"
)

// The step's segments: begin, micro, norm and update. Where a window has several micro-batches, window once, then begin,
// micro and sum for each of them.
const (
	segmentWindow = "window"
	segmentBegin  = "begin"
	segmentMicro  = "micro"
	segmentSum    = "sum"
	segmentNorm   = "norm"
	segmentUpdate = "update"
	segmentEach   = "norms" // of each tensor's gradient: with grad_norm_steps, in those steps
)

// Segments are those of a training step, in their order. Those of its Summing alone have calls.
var Segments = []string{segmentWindow, segmentBegin, segmentMicro, segmentSum, segmentNorm, segmentUpdate}

// nameScaling is the state of loss scaling, where the precision needs it; kernel.LossScale says what it holds.
const nameScaling = "loss scaling"

// gradientOf is the name of a trained tensor's gradient, that of the whole step.
func gradientOf(param string) string { return "gradient of " + param }

// groupMicro is the state of a micro-batch's gradients, where they are apart from the step's.
const groupMicro = "gradients of a micro-batch"

// nameStop is a batch value: not zero where this rank is asked to stop.
const nameStop = "stop"

// overlapCalls is for how many calls freed memory is kept unused where calls may run side by side. On one H200, Llama
// shapes of 135M and 1.1B at 512 tokens, more is no faster.
const overlapCalls = 6

// Step is the training step as one plan.
type Step struct {
	session.Program
	Tokens    int          // of a micro-batch, over all ranks that share them
	Loss      *graph.Value // f[], the optimizer step's loss
	Norm      *graph.Value // f[2], gradient norm and clip factor
	each      *graph.Value // the memory of each tensor's norm; nil = they are not asked for
	scaling   *graph.Value // state of loss scaling; nil where the machine's precision needs none
	objective objective.Objective
	sums      []*graph.Value // f[] each, of the objective's numbers over the optimizer step
	optimizer optimizer.Optimizer
	updates   []update
	states    []string // of the optimizer, which a checkpoint keeps
	summing   Summing
	stops     *graph.Value // f[], how many ranks were asked to stop; nil = one rank
}

// update is tensors whose learning rate is the step's times a factor.
type update struct {
	numbers string // batch value that the optimizer reads
	rate    float64
}

// Summing is how the gradients of a step's micro-batches come together. The zero value is for steps of one micro-batch.
//
// Apart, each micro-batch's gradient is computed from zero, as a step of that micro-batch alone would compute it, and added
// to the step's sum in the order of the window. So the sum is the same whichever rank computed which (decision 0056). Without
// it the GEMMs of a second micro-batch would add to the first one's result product by product, in another order.
type Summing struct {
	Apart bool
	Ranks int // that share the window, whose micro-batches they take in turn; 0 = one
}

func (s Summing) shared() bool { return s.Ranks > 1 }

// SummingOf is for windows of so many micro-batches over so many ranks.
func SummingOf(window, ranks int) Summing {
	return Summing{Apart: window > 1 || ranks > 1, Ranks: ranks}
}

// PlanStep plans forward, backward, clipping and optimizer for micro-batches of a shape.
func PlanStep(nw session.Network, s session.Shape, c Config, sum Summing, on graph.Machine) (*Step, error) {
	n, trained, in := nw.Declare("", s)
	t := &Step{Tokens: s.Tokens, objective: c.objective(), optimizer: optimizer.Optimizers[c.Optimizer](c.optimizer()), summing: sum}
	data := t.objective.Declare(n, "", session.Own(s.Tokens, nw.Ranks))
	numbers := n.Batch(t.declareUpdate(1), kernel.T(n.Float(), optimizer.NumbersSize))

	// The parameters exist once the layers do, so the segment that runs first is built last.
	n.Segment(segmentMicro)
	hidden := nw.Hidden(n, in) // [M,C]
	head := nw.Head(n)         // [V,C]
	scaled := on.Precision().Scaled()
	if scaled {
		t.scaling = n.State("", nameScaling, kernel.T(n.Float(), kernel.LossScalingSize))
	}
	at := objective.Network{Hidden: hidden, Head: head, LossRows: nw.LossRows(on), LogitCap: nw.Config.LogitCap, Scaling: t.scaling}
	out := t.objective.Train(n, at, data)
	if err := n.Err(); err != nil {
		return nil, err
	}
	loss := out.Loss
	if err := trained.CheckTargets(nw.Adapter, n.WeightNames()); err != nil {
		return nil, err
	}
	grads := n.Grad(loss, trained.Params...)
	sums := make([]*graph.Value, len(grads))
	for i, p := range trained.Params {
		sums[i] = n.State(adapter.GradGroup, gradientOf(p.Name), p.Type)
		to := sums[i]
		if sum.Apart {
			to = n.State(groupMicro, "micro-batch's "+gradientOf(p.Name), p.Type)
		}
		n.Apply(kernel.AddTo{}, to, grads[i])
	}
	t.Loss = n.State("", "loss", loss.Type)
	g, one, oneLoss := n.Span(adapter.GradGroup), (*graph.Value)(nil), t.Loss
	if sum.Apart {
		one, oneLoss = n.Span(groupMicro), n.State("", "loss of a micro-batch", loss.Type)
	}
	n.Apply(kernel.AddTo{}, oneLoss, loss)
	oneSums := t.planSums(n, out.Sums)
	if sum.Apart {
		t.planSum(n, g, one, oneLoss, oneSums)
	}

	n.Segment(segmentNorm)
	whole := g
	if sum.shared() {
		whole = n.Apply(kernel.GatherSlices{World: sum.Ranks}, g)
	}
	t.Norm = n.State("", "gradient norm", kernel.T(n.Float(), 2))
	n.Apply(kernel.GradNorm{MaxNorm: c.MaxGradNorm, Scaled: scaled}, t.withScaling(whole, t.Loss, t.Norm)...)
	if c.GradNormSteps > 0 {
		t.planEach(n, sums, t.Loss)
	}

	n.Segment(segmentUpdate)
	t.planUpdate(optimizer.Update{Net: n, Params: n.Span(adapter.ParamGroup), Grads: g, Norm: t.Norm, Numbers: numbers, Scaling: t.scaling}, trained, sums)
	if scaled {
		n.Apply(kernel.LossScale{Interval: c.LossScaleInterval}, t.scaling, t.Norm, t.Loss)
		t.states = append(t.states, nameScaling)
	}

	n.Segment(segmentBegin)
	if sum.Apart {
		n.Apply(kernel.Zero{}, one)
		n.Apply(kernel.Zero{}, oneLoss)
		for _, s := range oneSums {
			n.Apply(kernel.Zero{}, s)
		}
		n.Segment(segmentWindow)
	}
	n.Apply(kernel.Zero{}, g)
	n.Apply(kernel.Zero{}, t.Loss)
	for _, s := range t.sums {
		n.Apply(kernel.Zero{}, s)
	}
	if t.stops != nil {
		n.Apply(kernel.Zero{}, t.stops)
	}

	n.Recompute(nw.Layout.Recompute, nw.Layout.Layers)
	if nw.Layout.Overlap {
		n.Overlap(overlapCalls)
	}
	outputs := t.numbers()
	if t.each != nil {
		outputs = append(outputs, t.each)
	}
	plan, err := on.Compile(n.Builder, outputs...)
	if err != nil {
		return nil, fmt.Errorf("plan the training step: %w", err)
	}
	t.Program = session.Program{Net: n, Trained: trained, Plan: plan}
	return t, nil
}

// planSums declares the step's sums of the objective's numbers, and adds a micro-batch's to them. Where micro-batches are
// summed apart it adds to states of the micro-batch, which it returns.
func (t *Step) planSums(n *nn.Net, sums []*graph.Value) (one []*graph.Value) {
	var names []string
	for _, number := range t.objective.Numbers() {
		if number.Of == "" {
			names = append(names, number.Name)
		}
	}
	for i, s := range sums {
		t.sums = append(t.sums, n.State("", "sum of "+names[i], s.Type))
		to := t.sums[i]
		if t.summing.Apart {
			to = n.State("", "micro-batch's sum of "+names[i], s.Type)
			one = append(one, to)
		}
		n.Apply(kernel.AddTo{}, to, s)
	}
	return one
}

// planSum adds a micro-batch's gradients, loss and sums of numbers to the step's; of several ranks, those of a round in the
// order of the ranks. Each rank sums a slice of the gradients for all. A rank without a micro-batch takes part with zeros.
func (t *Step) planSum(n *nn.Net, sum, one, loss *graph.Value, sums []*graph.Value) {
	n.Segment(segmentSum)
	if !t.summing.shared() {
		n.Apply(kernel.AddTo{}, sum, one)
		n.Apply(kernel.AddTo{}, t.Loss, loss)
		for i, s := range sums {
			n.Apply(kernel.AddTo{}, t.sums[i], s)
		}
		return
	}
	stop := n.Batch(nameStop, kernel.T(n.Float(), 1))
	t.stops = n.State("", "stops", loss.Type)
	all := n.ApplyAll(kernel.Exchange{World: t.summing.Ranks, Numbers: len(sums)}, append([]*graph.Value{one, loss, stop}, sums...)...)
	n.Apply(kernel.AddInOrder{Slice: true}, sum, all[0])
	n.Apply(kernel.AddInOrder{}, t.Loss, all[1])
	n.Apply(kernel.AddInOrder{}, t.stops, all[2])
	for i := range sums {
		n.Apply(kernel.AddInOrder{}, t.sums[i], all[3+i])
	}
}

// planUpdate adds the optimizer: over all parameters as one vector, or tensor by tensor where they learn at rates of
// their own.
func (t *Step) planUpdate(all optimizer.Update, trained *adapter.Trained, grads []*graph.Value) {
	if !slices.ContainsFunc(trained.Rates, func(rate float64) bool { return rate != 1 }) {
		all.Extents = extents(trained, trained.Params)
		t.states = t.optimizer.Apply(all)
		return
	}
	numbers := map[float64]*graph.Value{1: all.Numbers}
	for i, p := range trained.Params {
		rate := trained.Rates[i]
		if numbers[rate] == nil {
			numbers[rate] = all.Net.Batch(t.declareUpdate(rate), all.Numbers.Type)
		}
		one := all
		one.Params, one.Grads, one.Numbers, one.Tensor = all.Net.Part(p), all.Net.Part(grads[i]), numbers[rate], p.Name
		one.Extents = extents(trained, trained.Params[i:i+1])
		t.states = append(t.states, t.optimizer.Apply(one)...)
	}
}

// extents are where the tensors of PEFT's lie in the memory of trained ones that follow one another, each aligned.
func extents(trained *adapter.Trained, params []*graph.Value) (all []optimizer.Extent) {
	var at int64 // bytes
	for _, p := range params {
		from := int(at) / p.Type.DType.Size()
		for _, n := range trained.Sizes(p) {
			all = append(all, optimizer.Extent{From: from, Numbers: n})
			from += n
		}
		at += kernel.AlignUp(p.Type.Bytes())
	}
	return all
}

// declareUpdate notes tensors that learn at a multiple of the step's rate, and names the batch value that says so.
func (t *Step) declareUpdate(rate float64) string {
	name := "optimizer"
	if rate != 1 {
		name = fmt.Sprintf("optimizer x%v", rate)
	}
	t.updates = append(t.updates, update{name, rate})
	return name
}

// numbers are what the host reads of a step: loss, norm and clip factor, and where there are such the state of loss scaling,
// the sums of the objective's numbers, and how many ranks were asked to stop.
func (t *Step) numbers() []*graph.Value {
	all := append(t.withScaling(t.Loss, t.Norm), t.sums...)
	if t.stops != nil {
		all = append(all, t.stops)
	}
	return all
}

// withScaling adds the state of loss scaling to the inputs of a Scaled kernel, where the step has it.
func (t *Step) withScaling(in ...*graph.Value) []*graph.Value {
	if t.scaling == nil {
		return in
	}
	return append(in, t.scaling)
}

// StartScaling writes the state that loss scaling begins with, and returns the scale; 0 where the step has none.
func (t *Step) StartScaling(m graph.Store, c Config) (float64, error) {
	if t.scaling == nil {
		return 0, nil
	}
	x, err := m.Tensor(nameScaling)
	if err != nil {
		return 0, err
	}
	s := x.F32()
	s[kernel.LossScaleNow], s[kernel.LossScaleStreak], s[kernel.LossScaleSkipped] = float32(c.LossScale), 0, 0
	return c.LossScale, m.Put(nameScaling)
}
