// Package gradcheck compares the gradients of a training step with float64.
//
// In goes an opened run: its base model on its device, its first micro-batch, and how its steps are planned (Input).
// Out comes a Report, which says of each trained tensor how far its gradient on the device is from the same step in
// float64 on the CPU, and how far it may be: a multiple of the error of a plain computation in the device's precision
// (rule.go).
package gradcheck

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// Options bound a check of gradients.
type Options struct {
	Layers int // the model is cut after so many layers; 0 = as many as MaxWork allows
	Tokens int // the batch is cut to so many tokens, unless the loss needs whole rows
}

// DefaultTokens is the number of tokens of the first micro-batch that a check takes by default.
const DefaultTokens = 128

// MaxWork is the number of multiplications of weights with tokens up to which a check takes more layers by itself:
// about a minute in float64 on two cores.
const MaxWork = 5e10

// ErrNoLayer is in the error of a check of more layers than the model has.
var ErrNoLayer = errors.New("not so many layers")

// Input is the run whose gradients are checked.
type Input struct {
	*session.Session
	Batch     dataset.Batch // the run's first micro-batch
	Step      step.Options
	LossScale float64 // that the run begins with
	LR        float64 // learning rate
	Seed      uint64
	// Whole is the shape of Batch where the loss needs whole rows, so that no token may be cut. The zero value allows
	// parts of rows.
	Whole session.Shape
}

// Report compares a step's gradients on the run's device with float64.
type Report struct {
	Model     string   `json:"model"`
	Device    string   `json:"device"`
	Precision string   `json:"precision"`
	Layers    int      `json:"layers"`    // the first layers of the model, which were checked
	OfLayers  int      `json:"of_layers"` // of the model
	Rows      []string `json:"rows"`      // file and line of each
	Tokens    int      `json:"tokens"`
	Trained   int      `json:"trained_tokens"`
	Loss      float64  `json:"loss"`           // on the device
	LossExact float64  `json:"loss_float64"`   // in float64
	Rule      string   `json:"rule"`           // of the limits, in words
	Draws     int      `json:"draws"`          // plain computations, of which the largest error counts
	All       Error    `json:"all"`            // of all tensors as one vector
	Tensors   []Error  `json:"tensors"`        // in the order of the model
	Failed    int      `json:"failed_tensors"` // tensors beyond their limit
	OK        bool     `json:"ok"`
	// Experts says that the model is a mixture of experts. Rounding may route a token to another expert, which is an
	// error beyond the limits and no fault.
	Experts bool `json:"experts,omitempty"`
}

// Error is how far a gradient is from float64.
type Error struct {
	Name  string  `json:"name"`
	Norm  float64 `json:"norm"`  // of the gradient in float64
	Error float64 `json:"error"` // norm of the difference / Norm; the largest float64 where it is not finite
	Plain float64 `json:"plain"` // Error of a plain computation in the precision, the largest of the draws
	Limit float64 `json:"limit"` // that Error may have
}

// OK reports whether an error is within its limit.
func (e Error) OK() bool { return e.Error <= e.Limit }

// Run computes one step's gradients on the run's model, data, device and precision, and compares each with the same
// step in float64 on the CPU. Both are of the model cut after some layers, of the micro-batch cut to some tokens, and
// of an adapter whose tensors that start at zero have small numbers, since an update of zero has gradients of zero.
func Run(ctx context.Context, in Input, o Options) (Report, error) {
	net, _, err := in.Net.Declared()
	if err != nil {
		return Report{}, err
	}
	if err := in.Base.Check(net); err != nil {
		return Report{}, err
	}
	if n := in.Base.Config.NumLayers; o.Layers > n {
		return Report{}, fmt.Errorf("%w: %d asked for, %s has %d: 1 to %d, or 0 for as many as are quick",
			ErrNoLayer, o.Layers, in.Base.Name, n, n)
	}
	in.Step.TensorNorms = false
	c := &check{Input: in, ctx: ctx}
	if err := c.takeBatch(o.Tokens); err != nil {
		return Report{}, err
	}
	if err := c.cutLayers(o.Layers); err != nil {
		return Report{}, err
	}
	return c.compare()
}

// check is one check of gradients.
type check struct {
	Input
	ctx    context.Context
	window step.Window
	rows   []string
	shape  session.Shape
	layers int // of the model
}

// takeBatch cuts the run's first micro-batch to so many tokens.
func (c *check) takeBatch(tokens int) error {
	b := c.Batch
	if c.Whole.Tokens > 0 && b.TrainedTokens == 0 {
		return fmt.Errorf("rows %v have no trained token: answers that a run samples are not there to check", b.Where())
	}
	if c.Whole.Tokens > 0 {
		c.rows, c.shape = b.Where(), c.Whole
		c.window = step.Window{Number: 1, Batches: []dataset.Batch{b}, Trained: b.TrainedTokens, Sequences: b.Count(),
			Groups: len(b.Rows), LR: c.LR}
		return nil
	}
	cut := cutBatch(b, min(tokens, c.Base.Config.MaxPositions))
	if cut.TrainedTokens == 0 {
		return fmt.Errorf("the first %d tokens of rows %v train nothing: give more --tokens", tokens, b.Where())
	}
	c.rows = b.Where()
	n := len(cut.CuSeqlens) - 1
	c.window = step.Window{
		Number: 1, Batches: []dataset.Batch{cut}, Trained: cut.TrainedTokens, Sequences: n, Groups: n, LR: c.LR,
	}
	longest := 0
	for i := range n {
		longest = max(longest, int(cut.CuSeqlens[i+1]-cut.CuSeqlens[i]))
	}
	c.shape = session.Shape{Tokens: len(cut.IDs), Sequences: n, MaxLen: longest}
	return nil
}

// cutBatch keeps at most so many tokens of a batch: of each sequence with trained tokens an equal share, from its
// start or, behind a long prompt, around its first trained token.
func cutBatch(b dataset.Batch, tokens int) dataset.Batch {
	var trained [][2]int // sequences with a trained token behind their first place
	for i := range len(b.CuSeqlens) - 1 {
		from, to := int(b.CuSeqlens[i]), int(b.CuSeqlens[i+1])
		if to-from > 1 && slices.ContainsFunc(b.Labels[from+1:to], func(l int32) bool { return l != dataset.Ignore }) {
			trained = append(trained, [2]int{from, to})
		}
	}
	cut := dataset.Batch{CuSeqlens: []int32{0}}
	for i, s := range trained {
		share := (tokens - len(cut.IDs)) / (len(trained) - i)
		if share < 2 {
			continue
		}
		from, to := s[0], min(s[1], s[0]+share)
		first := slices.IndexFunc(b.Labels[from+1:s[1]], func(l int32) bool { return l != dataset.Ignore }) + from + 1
		if late := first + share/2; late > to { // a long prompt: its end, and what is trained after it
			to = min(s[1], late)
			from = max(s[0], to-share)
		}
		cut.IDs, cut.Labels = append(cut.IDs, b.IDs[from:to]...), append(cut.Labels, b.Labels[from:to]...)
		if b.Weights != nil {
			cut.Weights = append(cut.Weights, b.Weights[from:to]...)
		}
		for p := range to - from {
			cut.Positions = append(cut.Positions, int32(p))
			if p > 0 && b.Labels[from+p] != dataset.Ignore {
				cut.TrainedTokens++
			}
		}
		cut.CuSeqlens = append(cut.CuSeqlens, int32(len(cut.IDs)))
	}
	cut.Tokens = len(cut.IDs)
	return cut
}

// cutLayers cuts the model after so many layers, or of 0 after as many as MaxWork and the free memory allow.
func (c *check) cutLayers(layers int) error {
	c.layers = c.Base.Config.NumLayers
	cut := func(n int) (float64, int64, error) {
		c.Net.Config.NumLayers = min(n, c.layers)
		t, err := step.Plan(floats(c.Net, kernel.F64), c.shape, c.Step, step.SummingOf(1, 1), graph.NewCPU(c.On.Workers()))
		if err != nil {
			return 0, 0, err
		}
		numbers := 0.0
		for _, w := range t.Net.Weights() {
			if len(w.Shape) > 1 {
				numbers += float64(kernel.T(kernel.F32, w.Shape...).Elems())
			}
		}
		need, err := graph.Need(t.Plan)
		return numbers * float64(c.shape.Tokens), need.Total(), err
	}
	if layers > 0 {
		_, _, err := cut(layers)
		return err
	}
	free, known, err := graph.NewCPU(1).FreeMemory()
	if err != nil {
		return err
	}
	for n := c.layers; ; n = (n + 1) / 2 {
		work, bytes, err := cut(n)
		if err != nil {
			return err
		}
		if fits := !known || bytes <= free; fits && (work <= MaxWork || n == 1) {
			return nil
		} else if n == 1 {
			return fmt.Errorf("%w: one layer in float64 holds %s, %s is free; give fewer --tokens", session.ErrDoesNotFit, session.FormatBytes(bytes), session.FormatBytes(free))
		}
	}
}

// compare makes the report.
func (c *check) compare() (r Report, err error) {
	precision, cpu := c.On.Precision(), graph.NewCPU(c.On.Workers())
	got, err := c.gradients(c.On, kernel.F32, rule{})
	if err != nil {
		return r, err
	}
	exact, err := c.gradients(cpu, kernel.F64, rule{})
	if err != nil {
		return r, fmt.Errorf("in float64: %w", err)
	}
	if !exact.any() {
		return r, fmt.Errorf("no trained tensor has a gradient on rows %v, in float64 either: nothing is compared",
			c.rows)
	}
	limits := rules[precision]
	r = Report{
		Model: c.Base.Name, Device: c.On.Name(), Precision: precision.String(),
		Layers: c.Net.Config.NumLayers, OfLayers: c.layers, Experts: c.Base.Config.Experts > 0,
		Rows: c.rows, Tokens: c.shape.Tokens, Trained: c.window.Trained,
		Loss: bounded(got.Loss), LossExact: bounded(exact.Loss),
	}
	r.errors(got, exact)
	for ; r.Draws == 0 || !r.OK && r.Draws < limits.draws; r.Draws++ {
		limits.draw = r.Draws
		plain, err := c.gradients(cpu, kernel.F32, limits)
		if err != nil {
			return r, fmt.Errorf("in plain %v: %w", precision, err)
		}
		r.judge(limits, plain, exact)
	}
	r.Rule = limits.of(r.Draws)
	return r, nil
}

// gradients computes the window's gradients on a machine. plain, where it has bits, makes it a plain computation on a
// CPU.
func (c *check) gradients(on graph.Machine, float kernel.DType, plain rule) (Gradients, error) {
	of := Computation{Session: c.Session, Step: c.Step, LossScale: c.LossScale, Window: c.window, Shape: c.shape, Seed: c.Seed}
	return of.gradients(c.ctx, on, float, plain)
}

// Gradients are the gradients of a step.
type Gradients struct {
	Names []string    // of the trained tensors, in the order of the model
	Of    [][]float64 // of each
	Loss  float64
}

// Computation is one step whose gradients are computed, with the adapter that a run of the seed starts with.
type Computation struct {
	*session.Session
	Step      step.Options
	LossScale float64
	Window    step.Window
	Shape     session.Shape
	Seed      uint64
}

// Gradients computes the gradients on a machine, with real numbers of a type.
func (c Computation) Gradients(ctx context.Context, on graph.Machine, float kernel.DType) (Gradients, error) {
	return c.gradients(ctx, on, float, rule{})
}

// floats returns the network with real numbers of a type, in the layout that keeps everything.
func floats(nw session.Network, d kernel.DType) session.Network {
	nw.Float, nw.Layout = d, session.Layout{}
	return nw
}

func (c Computation) gradients(ctx context.Context, on graph.Machine, float kernel.DType, plain rule) (_ Gradients, err error) {
	t, err := step.Plan(floats(c.Net, float), c.Shape, c.Step, step.SummingOf(len(c.Window.Batches), 1), on)
	if err != nil {
		return Gradients{}, err
	}
	if err := fits(t, on); err != nil {
		return Gradients{}, err
	}
	load := func(m graph.Store) error { return c.Base.Load(ctx, t.Net, m, on.Workers()) }
	m, err := session.Hold(on, load, &t.Program)
	if err != nil {
		return Gradients{}, err
	}
	defer func() {
		err = errors.Join(err, m.Close())
		debug.FreeOSMemory()
	}()
	round := plain.rounding()
	if plain.weights {
		roundWeights(t.Net, m, round)
	}
	if err := c.startAdapter(t, m); err != nil {
		return Gradients{}, err
	}
	pipeline, err := step.NewPipeline([]*step.Step{t}, m, m.Runs, on, 0, len(c.Window.Batches), c.Seed)
	if err != nil {
		return Gradients{}, err
	}
	if plain.bits != 0 {
		pipeline.SeeCalls(round)
	}
	for asked := c.LossScale; ; asked /= 2 { // as a run does where a gradient overflows
		scale, err := t.StartScaling(m, asked)
		if err != nil {
			return Gradients{}, err
		}
		if err := pipeline.Gradients(c.Window); err != nil {
			return Gradients{}, err
		}
		g, err := gradientsOf(t, m, max(scale, 1))
		if err != nil || g.finite() || scale <= 1 {
			return g, err
		}
	}
}

// fits returns an error where a step takes more memory than a machine has free.
func fits(t *step.Step, on graph.Machine) error {
	need, err := graph.Need(t.Plan)
	if err != nil {
		return err
	}
	if free, known, err := on.FreeMemory(); err == nil && known && need.Total() > free {
		return fmt.Errorf("%w: the check takes %s on %s, %s is free; give fewer --layers or --tokens",
			session.ErrDoesNotFit, session.FormatBytes(need.Total()), on.Name(), session.FormatBytes(free))
	}
	return nil
}

// roundWeights rounds the matrices of the base model that are numbers: what a GPU stores in 16 bits.
func roundWeights(n *nn.Net, m graph.Store, round func(kernel.Tensor)) {
	for _, w := range n.Weights() {
		if x, err := m.Tensor(w.Name); err == nil { // packed ones have other names, and are rounded when they are dequantised
			round(x)
		}
	}
}

// startAdapter gives the adapter its first numbers as a run does, and small ones to tensors that start at zero.
func (c Computation) startAdapter(t *step.Step, m graph.Store) error {
	params, err := t.Trained.Snapshot(m)
	if err != nil {
		return err
	}
	if err := c.Net.Start.Fill(t.Net, c.Base.Reader(), t.Trained, params); err != nil {
		return err
	}
	for i, p := range params {
		if slices.ContainsFunc(p.Data, func(v float32) bool { return v != 0 }) {
			continue
		}
		state := session.Mix(c.Seed ^ uint64(i))
		for k := range p.Data {
			state = session.Mix(state)
			p.Data[k] = startAround * (2*float32(state>>40)/(1<<24) - 1)
		}
	}
	return t.Trained.Restore(m, params)
}

// startAround bounds the numbers of tensors that start at zero: about the size that B has after some steps.
const startAround = 0.01

// gradientsOf copies a step's gradients and loss out of memory, divided by the loss scale.
func gradientsOf(t *step.Step, m graph.Store, scale float64) (Gradients, error) {
	var g Gradients
	for _, p := range t.Trained.Params {
		name := step.GradientName(p.Name)
		if err := m.Get(name); err != nil {
			return g, err
		}
		x, err := m.Tensor(name)
		if err != nil {
			return g, err
		}
		g.Names, g.Of = append(g.Names, p.Name), append(g.Of, float64s(x, scale))
		m.Forget(name)
	}
	if err := m.Get(t.Loss.Name); err != nil {
		return g, err
	}
	x, err := m.Tensor(t.Loss.Name)
	if err == nil {
		g.Loss = float64s(x, 1)[0]
	}
	return g, err
}

// any reports whether a gradient is not zero.
func (g Gradients) any() bool {
	return slices.ContainsFunc(g.Of, func(x []float64) bool {
		return slices.ContainsFunc(x, func(v float64) bool { return v != 0 })
	})
}

func (g Gradients) finite() bool {
	return !slices.ContainsFunc(g.Of, func(x []float64) bool {
		return slices.ContainsFunc(x, func(v float64) bool { return !finite(v) })
	})
}
