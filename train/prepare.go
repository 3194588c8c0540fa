package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/model/families"
)

// ErrDoesNotFit is in the error of a run whose plan needs more memory than there is.
var ErrDoesNotFit = errors.New("the run does not fit")

// ErrNoDevice is in the error of a run that asks for a device this program or machine does not have.
var ErrNoDevice = errors.New("no such device")

// prepared is a run before it takes memory: data read, every buffer's size and place known.
type prepared struct {
	spec   Spec
	env    Env
	base   *base
	net    network
	data   *dataset.Set
	report *dataset.Report
	loader *dataset.Loader
	val    *dataset.Loader // nil = no validation rows
	on     graph.Machine
	step   *trainStep
	eval   *evalStep // nil with val
	total  int       // optimizer steps
	need   graph.Bytes
	way    way     // as chosen
	tried  []tried // ways that did not fit
	limit  int64   // bytes that the run may hold; -1 = not known
}

func (e Env) log(format string, args ...any) {
	if e.Log != nil {
		e.Log(fmt.Sprintf(format, args...))
	}
}

// networkOf is what a spec trains on a base model: nothing without an adapter.
func networkOf(s Spec, b *base) (network, error) {
	build, err := families.For(b.config)
	if err != nil {
		return network{}, err
	}
	nw := network{Config: b.config, Build: build, Float: kernel.F32}
	if s.Adapter == "" {
		return nw, nil // the base model alone, or the adapter of a folder
	}
	method, quantised, err := adapter.Lookup(s.Adapter)
	if err != nil {
		return network{}, err
	}
	nw.Method, nw.Adapter, nw.Adapted = method, s.LoRA, true
	if quantised {
		if s.Quantization == nil {
			return network{}, fmt.Errorf("adapter: %s needs a section quantization", s.Adapter)
		}
		nw.Scheme = s.Quantization
	}
	return nw, nil
}

// openMachine opens what a run computes on: "auto" is the first GPU if this program and machine have one. precision is as in
// Config.
func openMachine(device, precision string, env Env) (graph.Machine, error) {
	p, err := precisionFor(device, precision)
	if err != nil {
		return nil, err
	}
	switch device {
	case "cpu":
		return graph.NewCPU(env.Workers), nil
	case "", "auto":
		if n, _ := gpu.Devices(); n == 0 {
			return graph.NewCPU(env.Workers), nil
		}
	case "cuda":
	default:
		return nil, fmt.Errorf("device %q: %w: use cpu, cuda or auto", device, ErrNoDevice)
	}
	on, err := graph.NewGPU(0, env.Workers, p)
	if err != nil {
		return nil, fmt.Errorf("device %q: %w: %w", device, ErrNoDevice, err)
	}
	return on, nil
}

// prepare reads model and data, and plans.
func prepare(ctx context.Context, s Spec, env Env) (*prepared, error) {
	on, err := openMachine(s.Device, s.Training.Precision, env)
	if err != nil {
		return nil, err
	}
	return prepareOn(ctx, s, env, on)
}

// prepareOn does it on a machine, which it closes if it fails.
func prepareOn(ctx context.Context, s Spec, env Env, on graph.Machine) (*prepared, error) {
	p := &prepared{spec: s, env: env, on: on}
	if err := p.plan(ctx); err != nil {
		p.close() //nolint:errcheck // the first error is what matters
		return nil, err
	}
	return p, nil
}

func (p *prepared) plan(ctx context.Context) error {
	b, err := openBase(ctx, p.spec.BaseModel, p.env)
	if err != nil {
		return err
	}
	p.base = b
	if p.net, err = networkOf(p.spec, p.base); err != nil {
		return err
	}
	if err := p.readData(ctx); err != nil {
		return err
	}
	if p.total, err = steps(p.spec.Training, p.loader); err != nil {
		return err
	}
	B, T, borders := p.loader.Shape()
	maxLen := T
	var z sizes
	if p.val != nil {
		valB, valT, valBorders := p.val.Shape()
		maxLen = max(maxLen, valT)
		z.eval = shape{valB * valT, valBorders - 1, maxLen}
	}
	if maxLen > p.base.config.MaxPositions {
		return fmt.Errorf("dataset.max_length: sequences of %d tokens are longer than the model's %d positions", maxLen, p.base.config.MaxPositions)
	}
	z.train = shape{B * T, borders - 1, maxLen}
	return p.fit(z)
}

// close releases what was opened, after a failure too.
func (p *prepared) close() error {
	var err error
	if p.base != nil {
		err = p.base.close()
	}
	if p.on != nil {
		err = errors.Join(err, p.on.Close())
	}
	return err
}

// loadData reads a spec's data, embedded or from files.
func loadData(ctx context.Context, c dataset.Config, seed uint64, b *base, env Env) (*dataset.Set, *dataset.Report, error) {
	c.Seed = seed
	short, embedded := strings.CutPrefix(c.Path, EmbeddedPrefix)
	if !embedded {
		return dataset.Load(ctx, c, b.tokenizer)
	}
	if env.Data == nil {
		return nil, nil, fmt.Errorf("open data %q: this program carries no data", c.Path)
	}
	fsys, err := env.Data(short)
	if err != nil {
		return nil, nil, fmt.Errorf("open data: %w", err)
	}
	c.Path, c.ValPath = short, strings.TrimPrefix(c.ValPath, EmbeddedPrefix)
	return dataset.LoadFS(ctx, fsys, c, b.tokenizer)
}

func (p *prepared) readData(ctx context.Context) error {
	var err error
	if p.data, p.report, err = loadData(ctx, p.spec.Dataset, p.spec.Seed, p.base, p.env); err != nil {
		return err
	}
	if err := checkIDs(p.data, p.base.config.VocabSize); err != nil {
		return err
	}
	if p.loader, err = p.data.TrainLoader(p.spec.Training.BatchSize); err != nil {
		return err
	}
	if len(p.data.Val) > 0 {
		if p.val, err = p.data.ValLoader(p.spec.Training.BatchSize); err != nil {
			return err
		}
	}
	return nil
}

// checkIDs refuses token ids that the model has no embedding for.
func checkIDs(s *dataset.Set, vocab int) error {
	for _, rows := range [][]dataset.Row{s.Train, s.Val} {
		for _, r := range rows {
			for _, id := range r.IDs {
				if id < 0 || int(id) >= vocab {
					return fmt.Errorf("%s: token id %d, the model knows 0 to %d: tokenizer and model do not belong together", r.Where(), id, vocab-1)
				}
			}
			for _, l := range r.Labels {
				if l != dataset.Ignore && (l < 0 || int(l) >= vocab) {
					return fmt.Errorf("%s: label %d, the model knows 0 to %d: tokenizer and model do not belong together", r.Where(), l, vocab-1)
				}
			}
		}
	}
	return nil
}

// steps is the number of optimizer steps: max_steps, or what epochs of the data make.
func steps(c Config, l *dataset.Loader) (int, error) {
	if c.MaxSteps > 0 {
		return c.MaxSteps, nil
	}
	whole := int(math.Floor(c.Epochs))
	n := l.Steps(whole, c.GradientAccumulationSteps)
	if part := c.Epochs - float64(whole); part > 0 {
		windows := (l.Batches(whole) + c.GradientAccumulationSteps - 1) / c.GradientAccumulationSteps
		n += int(math.Ceil(part * float64(windows)))
	}
	if n == 0 {
		return 0, fmt.Errorf("training.epochs: %v of %d rows makes no step", c.Epochs, l.Len())
	}
	return n, nil
}

// parameters counts a network's numbers: all of them, and those that are trained.
func (p *prepared) parameters() (all, trained int64) {
	for _, w := range p.step.net.Weights() {
		n := int64(1)
		for _, d := range w.Shape {
			n *= int64(d)
		}
		if w.Name != "" {
			all += n
		}
	}
	for _, v := range p.step.trained.Params {
		trained += int64(v.Type.Elems())
	}
	return all + trained, trained
}

// PlanRun reports the memory that a run will hold, to the byte, without holding any.
func PlanRun(ctx context.Context, s Spec, env Env) (PlanReport, error) {
	on, err := openMachine(s.Device, s.Training.Precision, env)
	if err != nil {
		return PlanReport{}, err
	}
	return planOn(ctx, s, env, on)
}

// PlanFor is PlanRun for a GPU of another machine.
func PlanFor(ctx context.Context, s Spec, env Env, chip gpu.Chip) (PlanReport, error) {
	p, err := precisionFor("cuda", s.Training.Precision)
	if err != nil {
		return PlanReport{}, err
	}
	on, err := graph.NewChip(chip, env.Workers, p)
	if err != nil {
		return PlanReport{}, fmt.Errorf("plan for %s: %w: %w", chip.Full, ErrNoDevice, err)
	}
	return planOn(ctx, s, env, on)
}

func planOn(ctx context.Context, s Spec, env Env, on graph.Machine) (PlanReport, error) {
	p, err := prepareOn(ctx, s, env, on)
	if err != nil {
		return PlanReport{}, err
	}
	defer p.close() //nolint:errcheck // read only
	return p.planReport(), nil
}

func (p *prepared) planReport() PlanReport {
	all, trained := p.parameters()
	B, T, _ := p.loader.Shape()
	r := PlanReport{
		Model: p.base.name, Device: p.on.Name(), Parameters: all, TrainedParameters: trained,
		Batch: B, SequenceLength: T, Steps: p.total, TotalBytes: p.need.Total(), Categories: categories(p.need),
		Precision: p.on.Precision().String(), PrecisionAuto: p.spec.Training.Precision == precisionAuto,
		Checkpointing: p.way.again.String(), Limit: max(p.limit, 0),
	}
	for _, t := range p.tried {
		r.Tried = append(r.Tried, PlanTried{t.way.String(), t.bytes})
	}
	if p.way.lossRows > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("the loss is worked out for %d rows at a time, as more of the logits do not fit; rounding may differ from a run with more", p.way.lossRows))
	}
	if p.way.layers > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("gradient_checkpointing %v holds for the first %d of %d layers, %v for the others", p.way.again, p.way.layers, p.base.config.NumLayers, p.way.again-1))
	}
	if p.net.Decoded {
		which := "quantised weights"
		if n := p.way.linears; n > 0 {
			which = fmt.Sprintf("the quantised weights of the first %d of %d linear layers", n, len(p.step.net.Quantised()))
		}
		r.Notes = append(r.Notes, which+" are kept decoded, for speed; decoded_weights: never keeps them packed")
	}
	if p.need.Host > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s of host memory hold the layers' inputs until the backward pass", FormatBytes(p.need.Host)))
	}
	return r
}

// categories lists what is held in a fixed order.
func categories(b graph.Bytes) []PlanCategory {
	c := []PlanCategory{{"frozen weights", b.Frozen}, {"activations", b.Arena}, {"batch", b.Batch}}
	for _, g := range b.Groups() {
		c = append(c, PlanCategory{g, b.State[g]})
	}
	return c
}
