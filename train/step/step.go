// Package step plans and runs one optimizer step of a training run.
//
// Plan takes a network, the shape of its micro-batches and Options, and returns a Step: one plan whose segments compute
// forward and backward of a micro-batch, sum gradients over micro-batches and ranks, clip them, and update the adapter.
// NewPipeline takes memory with such plans and returns a Pipeline, which queues a Window of micro-batches on the
// machine and returns the step's Numbers, among them its loss and gradient norm.
//
// The package knows no configuration, data set or file.
package step

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

// The segments of a step: begin, micro, norm and update. If a window has several micro-batches, SegmentWindow runs
// once, then SegmentBegin, SegmentMicro and SegmentSum for each of them.
const (
	SegmentWindow = "window" // zeroes the step's gradients and loss
	SegmentBegin  = "begin"  // zeroes a micro-batch's gradients and loss
	SegmentMicro  = "micro"  // forward and backward of a micro-batch
	SegmentSum    = "sum"    // adds a micro-batch's gradients and loss to the step's
	SegmentNorm   = "norm"   // the gradient norm and the clip factor
	SegmentUpdate = "update" // the optimizer
	SegmentNorms  = "norms"  // the norm of each tensor's gradient, in steps with Window.Norms

	SegmentAverage = "average" // writes an optimizer's averaged weights into the parameters, to evaluate and save
	SegmentTrained = "trained" // writes the weights that an averaging optimizer trains back into the parameters
)

// Segments lists the segments of a training step, in their order. Only the segments that the step's Summing needs have
// calls.
var Segments = []string{SegmentWindow, SegmentBegin, SegmentMicro, SegmentSum, SegmentNorm, SegmentUpdate}

// StateScaling names the state of loss scaling, which exists if the precision needs it; kernel.LossScale documents its
// contents.
const StateScaling = "loss scaling"

// GradientName names the state of a trained tensor's gradient in the whole step.
func GradientName(param string) string { return "gradient of " + param }

// groupMicro is the group of states of a micro-batch's gradients, if they are separate from the step's.
const groupMicro = "gradients of a micro-batch"

// nameStop is a batch value that is not zero if this rank must stop.
const nameStop = "stop"

// overlapCalls is the number of calls for which freed memory is not reused if calls may overlap. On one H200, with
// Llama shapes of 135M and 1.1B at 512 tokens, larger numbers are no faster.
const overlapCalls = 6

// Options are the settings that a step is planned from.
type Options struct {
	Objective objective.Objective
	Optimizer optimizer.Optimizer
	// MaxGradNorm is the largest gradient norm; a larger gradient is scaled down to it. 0 = no clipping.
	MaxGradNorm float64
	// TensorNorms plans the norm of each trained tensor's gradient too.
	TensorNorms bool
	// LossScaleInterval is the number of steps without an overflow after which the loss scale doubles.
	LossScaleInterval int
	// Rates are multiples of the step's learning rate, and Decays weight decays, of the trained tensors whose name a
	// pattern matches (adapter.MatchesBetween). They win over what the adapter's method says.
	Rates, Decays map[string]float64
	// NEFTuneAlpha is the alpha of noise on the embeddings; 0 = there is none.
	NEFTuneAlpha float64
}

// Step is the training step as one plan.
type Step struct {
	session.Program
	Tokens      int          // tokens of a micro-batch, over all ranks that share them
	Loss        *graph.Value // f[], the optimizer step's loss
	Norm        *graph.Value // f[2], gradient norm and clip factor
	TensorNorms *graph.Value // memory of each tensor's norm; nil = not planned
	Objective   objective.Objective
	Rates       []Rate   // learning rates, at least one; the first has the factor 1
	Groups      []Group  // trained tensors with a learning rate or a weight decay of their own
	States      []string // names of the states of the optimizer and of loss scaling, which a checkpoint keeps
	// Sharded has the States that lie in slices, one on each rank, and how many elements they have over all ranks.
	Sharded  map[string]int
	Received int64 // bytes of updated weights that each rank receives in a step, of tensors whose states are Sharded

	options Options
	width   int            // numbers of an embedding; 0 = the embeddings get no noise
	scaling *graph.Value   // state of loss scaling; nil if the machine's precision needs none
	sums    []*graph.Value // f[] each, sums of the objective's numbers over the optimizer step
	summing Summing

	averages bool         // the optimizer evaluates and saves other weights than it trains
	stops    *graph.Value // f[], number of ranks that must stop; nil = one rank
}

// Rate is a multiple of the step's learning rate that some trained tensors have.
type Rate struct {
	Factor  float64
	Numbers string // batch value that the optimizer reads for these tensors
}

// Summing says how a step adds up the gradients of its micro-batches. The zero value is for steps of one micro-batch.
//
// With Apart, each micro-batch's gradient is computed from zero, as a step of that micro-batch alone would compute it,
// and added to the step's sum in the order of the window. So the sum does not depend on which rank computed which
// micro-batch (decision 0056). Without Apart, the GEMMs of a second micro-batch would add to the first one's result
// product by product, in another order.
type Summing struct {
	Apart bool
	Ranks int // number of ranks that share the window and take its micro-batches in turn; 0 = one
	Rank  int // this rank, from 0
}

func (s Summing) shared() bool { return s.Ranks > 1 }

// SummingOf returns the summing of windows of window micro-batches over all ranks.
func SummingOf(window, ranks int) Summing {
	return Summing{Apart: window > 1 || ranks > 1, Ranks: ranks}
}

// Plan plans forward, backward, clipping and optimizer for micro-batches of a shape.
func Plan(nw session.Network, s session.Shape, o Options, sum Summing, on graph.Machine) (*Step, error) {
	n, trained, in := nw.Declare("", s)
	b := builder{Step: &Step{Tokens: s.Tokens, Objective: o.Objective, options: o, summing: sum,
		Sharded: map[string]int{}}, Net: n, trained: trained, offload: nw.Layout.OffloadStates,
		shard: nw.Layout.ShardStates}
	if o.NEFTuneAlpha > 0 {
		addNoise(n, nw.Own(s).Tokens)
		b.width = nw.Config.HiddenSize
	}
	data := o.Objective.Declare(n, "", nw.Own(s))
	numbers := n.Batch(b.declareRate(1), kernel.T(n.Float(), optimizer.NumbersSize))

	// The parameters exist once the layers do, so the segment that runs first is built last.
	n.Segment(SegmentMicro)
	at := objective.NetworkOf(o.Objective, nw, n, in)
	if on.Precision().Scaled() {
		b.scaling = n.State("", StateScaling, kernel.T(n.Float(), kernel.LossScalingSize))
	}
	at.LossRows, at.Scaling = nw.LossRows(on), b.scaling
	out := o.Objective.Train(n, at, data)
	if err := n.Err(); err != nil {
		return nil, err
	}
	if err := trained.CheckTargets(nw.Adapter, n.WeightNames()); err != nil {
		return nil, err
	}
	if err := b.group(); err != nil {
		return nil, err
	}
	if err := b.checkNarrow(); err != nil {
		return nil, err
	}
	b.planGradients(out)
	b.planNorm()
	if err := b.planUpdate(numbers); err != nil {
		return nil, err
	}
	b.planBegin()

	n.Recompute(nw.Layout.Recompute, nw.Layout.Layers, nw.Layout.Rest)
	if nw.Layout.Overlap {
		n.Overlap(overlapCalls)
	}
	outputs := b.numbers()
	if b.TensorNorms != nil {
		outputs = append(outputs, b.TensorNorms)
	}
	plan, err := on.Compile(n.Builder, outputs...)
	if err != nil {
		return nil, fmt.Errorf("plan the training step: %w", err)
	}
	b.Program = session.Program{Net: n, Trained: trained, Plan: plan}
	return b.Step, nil
}

// builder is a step whose segments are being planned.
type builder struct {
	*Step
	*nn.Net
	trained *adapter.Trained
	grads   []*graph.Value  // gradient of each trained tensor, in the whole step
	grad    *graph.Value    // grads as one vector
	offload bool            // the optimizer's states lie in host memory
	shard   bool            // the optimizer's states lie in slices over the ranks
	narrow  bool            // trained matrices are kept in bf16 alone
	decays  map[int]float64 // weight decays of trained tensors, by their place, that are not the configuration's

	// one and the following fields are the same for a micro-batch, if micro-batches are summed apart; else nil, and the
	// step's loss.
	one     *graph.Value
	oneLoss *graph.Value
	oneSums []*graph.Value // sums of the objective's numbers
}

// planGradients adds the backward pass of a micro-batch, and adds its gradients, loss and sums of numbers to the
// step's.
func (b *builder) planGradients(out objective.Outcome) {
	grads := b.Grad(out.Loss, b.trained.Params...)
	b.grads = make([]*graph.Value, len(grads))
	for i, p := range b.trained.Params {
		b.grads[i] = b.State(adapter.GradGroup, GradientName(p.Name), p.Type)
		to := b.grads[i]
		if b.summing.Apart {
			to = b.State(groupMicro, "micro-batch's "+GradientName(p.Name), p.Type)
		}
		b.Apply(kernel.AddTo{}, to, grads[i])
	}
	b.Loss = b.State("", "loss", out.Loss.Type)
	b.grad, b.oneLoss = b.Span(adapter.GradGroup), b.Loss
	if b.summing.Apart {
		b.one, b.oneLoss = b.Span(groupMicro), b.State("", "loss of a micro-batch", out.Loss.Type)
	}
	b.Apply(kernel.AddTo{}, b.oneLoss, out.Loss)
	b.planNumbers(out.Sums)
	if b.summing.Apart {
		b.planSum()
	}
}

// planNumbers declares the step's sums of the objective's numbers. It adds a micro-batch's sums to them, or, if
// micro-batches are summed apart, to states of the micro-batch.
func (b *builder) planNumbers(sums []*graph.Value) {
	var names []string
	for _, number := range b.Objective.Numbers() {
		if number.Summed() {
			names = append(names, number.Name)
		}
	}
	for i, s := range sums {
		b.sums = append(b.sums, b.State("", "sum of "+names[i], s.Type))
		to := b.sums[i]
		if b.summing.Apart {
			to = b.State("", "micro-batch's sum of "+names[i], s.Type)
			b.oneSums = append(b.oneSums, to)
		}
		b.Apply(kernel.AddTo{}, to, s)
	}
}

// planSum adds a micro-batch's gradients, loss and sums of numbers to the step's. With several ranks it adds those of a
// round in the order of the ranks; each rank sums one slice of the gradients for all. A rank without a micro-batch
// takes part with zeros.
func (b *builder) planSum() {
	b.Segment(SegmentSum)
	if !b.summing.shared() {
		b.Apply(kernel.AddTo{}, b.grad, b.one)
		b.Apply(kernel.AddTo{}, b.Loss, b.oneLoss)
		for i, s := range b.oneSums {
			b.Apply(kernel.AddTo{}, b.sums[i], s)
		}
		return
	}
	stop := b.Batch(nameStop, kernel.T(b.Float(), 1))
	b.stops = b.State("", "stops", b.oneLoss.Type)
	exchange := kernel.Exchange{World: b.summing.Ranks, Numbers: len(b.oneSums)}
	all := b.ApplyAll(exchange, append([]*graph.Value{b.one, b.oneLoss, stop}, b.oneSums...)...)
	b.Apply(kernel.AddInOrder{Slice: true}, b.grad, all[0])
	b.Apply(kernel.AddInOrder{}, b.Loss, all[1])
	b.Apply(kernel.AddInOrder{}, b.stops, all[2])
	for i := range b.oneSums {
		b.Apply(kernel.AddInOrder{}, b.sums[i], all[3+i])
	}
}

// planNorm adds the gradient norm and the clip factor.
func (b *builder) planNorm() {
	b.Segment(SegmentNorm)
	whole := b.grad
	if b.summing.shared() {
		whole = b.Apply(kernel.GatherSlices{World: b.summing.Ranks}, b.grad)
	}
	b.Norm = b.State("", "gradient norm", kernel.T(b.Float(), 2))
	norm := kernel.GradNorm{MaxNorm: b.options.MaxGradNorm, Scaled: b.scaling != nil}
	b.Apply(norm, b.withScaling(whole, b.Loss, b.Norm)...)
	if b.options.TensorNorms {
		b.planTensorNorms()
	}
}

// planUpdate adds the optimizer: over all parameters as one vector, or tensor by tensor if their learning rates or
// their weight decay differ. numbers is the batch value that it reads for tensors with the step's learning rate.
func (b *builder) planUpdate(numbers *graph.Value) error {
	b.Segment(SegmentUpdate)
	updates := b.updates(numbers)
	if c, ok := b.options.Optimizer.(optimizer.Checker); ok {
		var tensors []optimizer.Tensor
		for _, u := range updates {
			tensors = append(tensors, u.Tensors...)
		}
		if err := c.Check(tensors); err != nil {
			return err
		}
	}
	for _, u := range updates {
		b.States = append(b.States, b.apply(u)...)
	}
	if b.scaling != nil {
		b.Apply(kernel.LossScale{Interval: b.options.LossScaleInterval}, b.scaling, b.Norm, b.Loss)
		b.States = append(b.States, StateScaling)
	}
	if a, ok := b.options.Optimizer.(optimizer.Averaging); ok {
		b.averages = true
		for _, segment := range []string{SegmentAverage, SegmentTrained} {
			b.Segment(segment)
			for _, u := range updates {
				b.changeSlice(u, func(u optimizer.Update) { a.Show(u, segment == SegmentAverage) })
			}
		}
	}
	return nil
}

// updates returns what the optimizer updates: all parameters as one vector, or each tensor.
func (b *builder) updates(numbers *graph.Value) (updates []optimizer.Update) {
	all := optimizer.Update{Net: b.Net, Grads: b.grad, Norm: b.Norm, Numbers: numbers, Scaling: b.scaling,
		Offload: b.offload}
	tensors := Tensors(b.trained, b.grads)
	if !slices.ContainsFunc(b.trained.Rates, func(rate float64) bool { return rate != 1 }) && len(b.decays) == 0 &&
		!b.narrow {
		all.Params, all.Tensors = b.Span(adapter.ParamGroup), tensors
		all.Extents = Extents(b.trained, b.trained.Params)
		return []optimizer.Update{all}
	}
	values := map[float64]*graph.Value{1: all.Numbers}
	for i, p := range b.trained.Params {
		rate := b.trained.Rates[i]
		if values[rate] == nil {
			values[rate] = b.Batch(b.declareRate(rate), all.Numbers.Type)
		}
		one := all
		one.Params, one.Grads, one.Numbers, one.Tensor = b.Part(p), b.Part(b.grads[i]), values[rate], p.Name
		one.Decay, one.OwnDecay = b.decays[i]
		one.Extents, one.Tensors = Extents(b.trained, b.trained.Params[i:i+1]), tensors[i:i+1]
		one.Tensors[0].From = 0
		updates = append(updates, one)
	}
	return updates
}

// planBegin zeroes the states that micro-batches add to.
func (b *builder) planBegin() {
	b.Segment(SegmentBegin)
	if b.summing.Apart {
		b.Apply(kernel.Zero{}, b.one)
		b.Apply(kernel.Zero{}, b.oneLoss)
		for _, s := range b.oneSums {
			b.Apply(kernel.Zero{}, s)
		}
		b.Segment(SegmentWindow)
	}
	b.Apply(kernel.Zero{}, b.grad)
	b.Apply(kernel.Zero{}, b.Loss)
	for _, s := range b.sums {
		b.Apply(kernel.Zero{}, s)
	}
	if b.stops != nil {
		b.Apply(kernel.Zero{}, b.stops)
	}
}

// Extents returns the offsets of the tensors of a PEFT adapter in the memory of the trained tensors, which follow one
// another, each aligned.
func Extents(trained *adapter.Trained, params []*graph.Value) (all []optimizer.Extent) {
	var at int64 // offset in bytes
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

// Tensors returns the trained tensors, whose gradients are given, with their places in the memory of all.
func Tensors(trained *adapter.Trained, grads []*graph.Value) (all []optimizer.Tensor) {
	var at int64 // offset in bytes
	for i, p := range trained.Params {
		from := int(at) / p.Type.DType.Size()
		all = append(all, optimizer.Tensor{Name: p.Name, Shape: p.Type.Shape, From: from, Param: p, Grad: grads[i]})
		at += kernel.AlignUp(p.Type.Bytes())
	}
	return all
}

// declareRate records tensors whose learning rate is a multiple of the step's, and returns the name of the batch value
// that has it.
func (t *Step) declareRate(factor float64) string {
	name := "optimizer"
	if factor != 1 {
		name = fmt.Sprintf("optimizer x%v", factor)
	}
	t.Rates = append(t.Rates, Rate{factor, name})
	return name
}

// numbers returns the values that the host reads of a step: loss, norm and clip factor, and, if they exist, the state
// of loss scaling, the sums of the objective's numbers, and the number of ranks that must stop.
func (t *Step) numbers() []*graph.Value {
	all := append(t.withScaling(t.Loss, t.Norm), t.sums...)
	if t.stops != nil {
		all = append(all, t.stops)
	}
	return all
}

// withScaling adds the state of loss scaling, if the step has it, to the inputs of a Scaled kernel.
func (t *Step) withScaling(in ...*graph.Value) []*graph.Value {
	if t.scaling == nil {
		return in
	}
	return append(in, t.scaling)
}

// StartScaling writes the initial loss scale of a run, and returns it; 0 if the step has no loss scaling.
func (t *Step) StartScaling(m graph.Store, scale float64) (float64, error) {
	if t.scaling == nil {
		return 0, nil
	}
	x, err := m.Tensor(StateScaling)
	if err != nil {
		return 0, err
	}
	s := x.F32()
	s[kernel.LossScaleNow], s[kernel.LossScaleStreak], s[kernel.LossScaleSkipped] = float32(scale), 0, 0
	return scale, m.Put(StateScaling)
}
