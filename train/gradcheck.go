package train

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// GradCheckOptions bound a check of gradients.
type GradCheckOptions struct {
	Layers int // the model is cut after so many; 0 = as many as GradCheckWork allows
	Tokens int // at most, of the run's first batch
}

// GradCheckTokens are those of the first batch that a check takes unless it is told otherwise.
const GradCheckTokens = 128

// GradCheckWork is the most multiplications of weights with tokens that a check does by itself, which is about a minute
// in float64 on two cores.
const GradCheckWork = 5e10

// ErrNoLayer is in the error of a check of more layers than the model has.
var ErrNoLayer = errors.New("not so many layers")

// GradCheckReport compares a step's gradients on the run's device with float64.
type GradCheckReport struct {
	Model     string      `json:"model"`
	Device    string      `json:"device"`
	Precision string      `json:"precision"`
	Layers    int         `json:"layers"` // that were checked, the first ones
	OfLayers  int         `json:"of_layers"`
	Rows      []string    `json:"rows"` // file and line
	Tokens    int         `json:"tokens"`
	Trained   int         `json:"trained_tokens"`
	Loss      float64     `json:"loss"`           // on the device
	LossExact float64     `json:"loss_float64"`   // in float64
	Rule      string      `json:"rule"`           // of the limits
	Draws     int         `json:"draws"`          // of plain computations, whose largest error counts
	All       GradError   `json:"all"`            // of all tensors as one vector
	Tensors   []GradError `json:"tensors"`        // in the order of the model
	Failed    int         `json:"failed_tensors"` // beyond their limit
	OK        bool        `json:"ok"`
	Experts   bool        `json:"experts,omitempty"` // a mixture of them: rounding may give a token to another expert, which is an error beyond the limits and no fault
}

// GradError is how far a gradient is from float64.
type GradError struct {
	Name  string  `json:"name"`
	Norm  float64 `json:"norm"`  // of the gradient in float64
	Error float64 `json:"error"` // norm of the difference / Norm; the largest float64 where it is no number
	Plain float64 `json:"plain"` // the same of a plain computation in the precision, the largest of the draws
	Limit float64 `json:"limit"`
}

// OK tells whether an error is within its limit.
func (e GradError) OK() bool { return e.Error <= e.Limit }

// GradCheck computes one step's gradients on the run's model, data, device and precision, and compares each with the same
// step in float64 on the CPU. Both are of the model cut after some layers, of the run's first batch cut to some tokens,
// and of an adapter whose tensors that start at zero got small numbers, since an update of zero has gradients of zero.
func GradCheck(ctx context.Context, s Spec, env Env, o GradCheckOptions) (GradCheckReport, error) {
	on, err := session.OpenMachine(s.Device, s.Training.Precision, env.Env)
	if err != nil {
		return GradCheckReport{}, err
	}
	return gradCheckOn(ctx, s, env, o, on)
}

// gradCheckOn checks a machine, which it closes.
func gradCheckOn(ctx context.Context, s Spec, env Env, o GradCheckOptions, on graph.Machine) (_ GradCheckReport, err error) {
	opened, err := session.OpenOn(ctx, s.Session(), env.Env, on)
	if err != nil {
		return GradCheckReport{}, err
	}
	p := &prepared{Session: opened, spec: s, env: env, batches: batches{division: divisionOf(s, env)}}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.readData(ctx); err != nil {
		return GradCheckReport{}, err
	}
	net, _, err := p.Net.Declared()
	if err != nil {
		return GradCheckReport{}, err
	}
	if err := p.Base.Check(net); err != nil {
		return GradCheckReport{}, err
	}
	if n := p.Base.Config.NumLayers; o.Layers > n {
		return GradCheckReport{}, fmt.Errorf("%w: %d asked for, %s has %d: 1 to %d, or 0 for as many as are quick", ErrNoLayer, o.Layers, p.Base.Name, n, n)
	}
	c := &gradCheck{prepared: p, ctx: ctx}
	if err := c.takeBatch(o.Tokens); err != nil {
		return GradCheckReport{}, err
	}
	if err := c.cutLayers(o.Layers); err != nil {
		return GradCheckReport{}, err
	}
	return c.compare()
}

// gradCheck is one check of gradients.
type gradCheck struct {
	*prepared
	ctx    context.Context
	window Window
	rows   []string
	shape  session.Shape
	layers int // of the model
}

// takeBatch cuts the run's first micro-batch to so many tokens.
func (c *gradCheck) takeBatch(tokens int) error {
	batches, _, err := c.loader.NextWindow(1)
	if err != nil {
		return err
	}
	b := batches[0]
	cut := cutBatch(b, min(tokens, c.Base.Config.MaxPositions))
	if cut.TrainedTokens == 0 {
		return fmt.Errorf("the first %d tokens of rows %v train nothing: give more --tokens", tokens, b.Where())
	}
	c.rows = b.Where()
	c.window = Window{Number: 1, Batches: []dataset.Batch{cut}, Trained: cut.TrainedTokens, LR: c.spec.Training.LearningRate}
	longest := 0
	for i := range len(cut.CuSeqlens) - 1 {
		longest = max(longest, int(cut.CuSeqlens[i+1]-cut.CuSeqlens[i]))
	}
	c.shape = session.Shape{Tokens: len(cut.IDs), Sequences: len(cut.CuSeqlens) - 1, MaxLen: longest}
	return nil
}

// cutBatch keeps at most so many tokens of a batch: of each sequence with trained tokens an equal share, from its start
// or, behind a long prompt, around its first trained token.
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

// cutLayers cuts the model after so many layers, or of 0 after as many as GradCheckWork and the free memory allow.
func (c *gradCheck) cutLayers(layers int) error {
	c.layers = c.Base.Config.NumLayers
	cut := func(n int) (float64, int64, error) {
		c.Net.Config.NumLayers = min(n, c.layers)
		step, err := PlanStep(c.floats(kernel.F64), c.shape, c.config(), SummingOf(1, 1), graph.NewCPU(c.On.Workers()))
		if err != nil {
			return 0, 0, err
		}
		numbers := 0.0
		for _, w := range step.Net.Weights() {
			if len(w.Shape) > 1 {
				numbers += float64(kernel.T(kernel.F32, w.Shape...).Elems())
			}
		}
		need, err := graph.Need(step.Plan)
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
		if fits := !known || bytes <= free; fits && (work <= GradCheckWork || n == 1) {
			return nil
		} else if n == 1 {
			return fmt.Errorf("%w: one layer in float64 holds %s, %s is free; give fewer --tokens", session.ErrDoesNotFit, session.FormatBytes(bytes), session.FormatBytes(free))
		}
	}
}

// floats is the network with real numbers of a type.
func (c *gradCheck) floats(d kernel.DType) session.Network {
	nw := c.Net
	nw.Float, nw.Layout = d, session.Layout{}
	return nw
}

// config is the training section without what only a run has.
func (c *gradCheck) config() Config {
	config := c.spec.Training
	config.GradNormSteps = 0
	return config
}

// compare makes the report.
func (c *gradCheck) compare() (r GradCheckReport, err error) {
	precision, cpu := c.On.Precision(), graph.NewCPU(c.On.Workers())
	got, err := c.gradients(c.On, kernel.F32, gradRule{})
	if err != nil {
		return r, err
	}
	exact, err := c.gradients(cpu, kernel.F64, gradRule{})
	if err != nil {
		return r, fmt.Errorf("in float64: %w", err)
	}
	rule := gradRules[precision]
	r = GradCheckReport{
		Model: c.Base.Name, Device: c.On.Name(), Precision: precision.String(), Layers: c.Net.Config.NumLayers, OfLayers: c.layers,
		Rows: c.rows, Tokens: c.shape.Tokens, Trained: c.window.Trained, Loss: bounded(got.loss), LossExact: bounded(exact.loss), Experts: c.Base.Config.Experts > 0,
	}
	r.errors(got, exact)
	for ; r.Draws == 0 || !r.OK && r.Draws < rule.draws; r.Draws++ {
		rule.draw = r.Draws
		plain, err := c.gradients(cpu, kernel.F32, rule)
		if err != nil {
			return r, fmt.Errorf("in plain %v: %w", precision, err)
		}
		r.judge(rule, plain, exact)
	}
	r.Rule = rule.of(r.Draws)
	return r, nil
}

// gradients are a step's.
type gradients struct {
	names []string
	of    [][]float64
	loss  float64
}

// gradients computes the window's on a machine, of a rule with bits the plain ones, on a CPU.
func (c *gradCheck) gradients(on graph.Machine, float kernel.DType, rule gradRule) (_ gradients, err error) {
	config := c.config()
	step, err := PlanStep(c.floats(float), c.shape, config, SummingOf(len(c.window.Batches), 1), on)
	if err != nil {
		return gradients{}, err
	}
	need, err := graph.Need(step.Plan)
	if err != nil {
		return gradients{}, err
	}
	if free, known, err := on.FreeMemory(); err == nil && known && need.Total() > free {
		return gradients{}, fmt.Errorf("%w: the check holds %s on %s, %s is free; give fewer --layers or --tokens", session.ErrDoesNotFit,
			session.FormatBytes(need.Total()), on.Name(), session.FormatBytes(free))
	}
	m, err := session.Hold(on, func(m graph.Store) error { return c.Base.Load(c.ctx, step.Net, m, on.Workers()) }, &step.Program)
	if err != nil {
		return gradients{}, err
	}
	defer func() {
		err = errors.Join(err, m.Close())
		debug.FreeOSMemory()
	}()
	round := rule.rounding()
	if rule.weights {
		roundWeights(step.Net, m, round)
	}
	params, err := step.Trained.Snapshot(m)
	if err != nil {
		return gradients{}, err
	}
	if err := c.fill(step, params); err != nil {
		return gradients{}, err
	}
	if err := step.Trained.Restore(m, params); err != nil {
		return gradients{}, err
	}
	pipeline, err := NewPipeline([]*Step{step}, m, m.Runs, on, 0, len(c.window.Batches), c.spec.Seed)
	if err != nil {
		return gradients{}, err
	}
	for {
		scale, err := step.StartScaling(m, config)
		if err != nil {
			return gradients{}, err
		}
		if rule.bits != 0 {
			pipeline.round = round
		}
		if err := pipeline.Gradients(c.window); err != nil {
			return gradients{}, err
		}
		g, err := step.gradients(m, max(scale, 1))
		if err != nil || g.finite() || scale <= 1 {
			return g, err
		}
		config.LossScale /= 2 // as a run does where a gradient overflows
	}
}

// roundWeights rounds the matrices of the base model that are numbers: what a GPU stores in 16 bits.
func roundWeights(n *nn.Net, m graph.Store, round func(kernel.Tensor)) {
	for _, w := range n.Weights() {
		if x, err := m.Tensor(w.Name); err == nil { // packed ones have other names, and are rounded when they are dequantised
			round(x)
		}
	}
}

// fill gives the adapter its first numbers as a run does, and small ones to tensors that start at zero.
func (c *gradCheck) fill(step *Step, params []adapter.Param) error {
	if err := c.Net.Start.Fill(step.Net, c.Base.Reader(), step.Trained, params); err != nil {
		return err
	}
	for i, p := range params {
		if slices.ContainsFunc(p.Data, func(v float32) bool { return v != 0 }) {
			continue
		}
		state := session.Mix(c.spec.Seed ^ uint64(i))
		for k := range p.Data {
			state = session.Mix(state)
			p.Data[k] = startAround * (2*float32(state>>40)/(1<<24) - 1)
		}
	}
	return nil
}

// startAround bounds what tensors get that start at zero: the size that B has after some steps.
const startAround = 0.01

// gradients copies a step's gradients and loss out of memory, divided by the loss scale.
func (t *Step) gradients(m graph.Store, scale float64) (gradients, error) {
	var g gradients
	for _, p := range t.Trained.Params {
		name := gradientOf(p.Name)
		if err := m.Get(name); err != nil {
			return g, err
		}
		x, err := m.Tensor(name)
		if err != nil {
			return g, err
		}
		g.names, g.of = append(g.names, p.Name), append(g.of, float64s(x, scale))
		m.Forget(name)
	}
	if err := m.Get(t.Loss.Name); err != nil {
		return g, err
	}
	x, err := m.Tensor(t.Loss.Name)
	if err == nil {
		g.loss = float64s(x, 1)[0]
	}
	return g, err
}

func (g gradients) finite() bool {
	return !slices.ContainsFunc(g.of, func(x []float64) bool { return slices.ContainsFunc(x, func(v float64) bool { return !finite(v) }) })
}
