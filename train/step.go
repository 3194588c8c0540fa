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

// The step's segments: begin once, micro for every micro-batch, norm and update once.
const (
	segmentBegin  = "begin"
	segmentMicro  = "micro"
	segmentNorm   = "norm"
	segmentUpdate = "update"
	segmentEach   = "norms" // of each tensor's gradient: with grad_norm_steps, in those steps
)

// Segments are those of a training step, in their order.
var Segments = []string{segmentBegin, segmentMicro, segmentNorm, segmentUpdate}

// nameScaling is the state of loss scaling, where the precision needs it; kernel.LossScale says what it holds.
const nameScaling = "loss scaling"

// gradientOf is the name of a trained tensor's gradient.
func gradientOf(param string) string { return "gradient of " + param }

// overlapCalls is for how many calls freed memory is kept unused where calls may run side by side. On one H200, Llama
// shapes of 135M and 1.1B at 512 tokens, more is no faster.
const overlapCalls = 6

// Step is the training step as one plan.
type Step struct {
	session.Program
	Tokens    int          // of a micro-batch
	Loss      *graph.Value // f[], the optimizer step's loss
	Norm      *graph.Value // f[2], gradient norm and clip factor
	each      *graph.Value // the memory of each tensor's norm; nil = they are not asked for
	scaling   *graph.Value // state of loss scaling; nil where the machine's precision needs none
	objective objective.Objective
	optimizer optimizer.Optimizer
	updates   []update
	states    []string // of the optimizer, which a checkpoint keeps
}

// update is tensors whose learning rate is the step's times a factor.
type update struct {
	numbers string // batch value that the optimizer reads
	rate    float64
}

// Reduction adds to a plan what makes the gradients (one vector) and the loss whole where several devices share a step.
type Reduction func(n *nn.Net, gradients, loss *graph.Value)

// PlanStep plans forward, backward, clipping and optimizer for micro-batches of a shape. reduce comes between the last
// micro-batch and the norm; nil = one device.
func PlanStep(nw session.Network, s session.Shape, c Config, reduce Reduction, on graph.Machine) (*Step, error) {
	n, trained, in := nw.Declare("", s)
	t := &Step{Tokens: s.Tokens, objective: objective.Objectives[c.Objective], optimizer: optimizer.Optimizers[c.Optimizer](c.optimizer())}
	data := t.objective.Declare(n, "", s.Tokens)
	numbers := n.Batch(t.declareUpdate(1), kernel.T(n.Float(), optimizer.NumbersSize))

	// The parameters exist once the layers do, so the segment that runs first is built last.
	n.Segment(segmentMicro)
	hidden := nw.Hidden(n, in) // [M,C]
	head := nw.Head(n)         // [V,C]
	scaled := on.Precision().Scaled()
	if scaled {
		t.scaling = n.State("", nameScaling, kernel.T(n.Float(), kernel.LossScalingSize))
	}
	loss := t.objective.Train(n, objective.Network{Hidden: hidden, Head: head, LossRows: nw.LossRows(on), LogitCap: nw.Config.LogitCap, Scaling: t.scaling}, data)
	if err := n.Err(); err != nil {
		return nil, err
	}
	if err := trained.CheckTargets(nw.Adapter, n.WeightNames()); err != nil {
		return nil, err
	}
	grads := n.Grad(loss, trained.Params...)
	sums := make([]*graph.Value, len(grads))
	for i, p := range trained.Params {
		sums[i] = n.State(adapter.GradGroup, gradientOf(p.Name), p.Type)
		n.Apply(kernel.AddTo{}, sums[i], grads[i])
	}
	lossSum := n.State("", "loss", loss.Type)
	n.Apply(kernel.AddTo{}, lossSum, loss)

	n.Segment(segmentNorm)
	g := n.Span(adapter.GradGroup)
	if reduce != nil {
		reduce(n, g, lossSum)
	}
	t.Norm = n.State("", "gradient norm", kernel.T(n.Float(), 2))
	n.Apply(kernel.GradNorm{MaxNorm: c.MaxGradNorm, Scaled: scaled}, t.withScaling(g, lossSum, t.Norm)...)
	if c.GradNormSteps > 0 {
		t.planEach(n, sums, lossSum)
	}

	n.Segment(segmentUpdate)
	t.planUpdate(optimizer.Update{Net: n, Params: n.Span(adapter.ParamGroup), Grads: g, Norm: t.Norm, Numbers: numbers, Scaling: t.scaling}, trained, sums)
	if scaled {
		n.Apply(kernel.LossScale{Interval: c.LossScaleInterval}, t.scaling, t.Norm, lossSum)
		t.states = append(t.states, nameScaling)
	}

	n.Segment(segmentBegin)
	n.Apply(kernel.Zero{}, g)
	n.Apply(kernel.Zero{}, lossSum)

	t.Loss = lossSum
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

// planUpdate adds the optimizer: over all parameters as one vector, or tensor by tensor where they learn at rates of
// their own.
func (t *Step) planUpdate(all optimizer.Update, trained *adapter.Trained, grads []*graph.Value) {
	if !slices.ContainsFunc(trained.Rates, func(rate float64) bool { return rate != 1 }) {
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
		t.states = append(t.states, t.optimizer.Apply(one)...)
	}
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

// numbers are what the host reads of a step: loss, norm and clip factor, and the state of loss scaling where there is one.
func (t *Step) numbers() []*graph.Value { return t.withScaling(t.Loss, t.Norm) }

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
