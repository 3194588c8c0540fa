// Package bench times training steps call by call, for models known only by their sizes, on random weights, and for a
// user's own runs.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// Measure sets how much is timed.
type Measure struct {
	Warmup, Steps int
	StepsAlone    bool              // without calls, parts and ceilings, for a profiler that watches the process
	Trace         func(Trace) error // receives a step call by call; nil = no trace

	ranks   int  // number of ranks that share the steps; 0 = one
	share   int  // number of ranks that share each row; 0 = one
	follows bool // another rank reports
}

// reported returns the number of ranks for a report: 0 = one.
func (m Measure) reported() int {
	if m.ranks > 1 {
		return m.ranks
	}
	return 0
}

// Options describe a benchmark of a model known only by its sizes: random weights and tokens.
type Options struct {
	Measure
	Shape         string
	Batch, Length int // rows, and tokens per row
	LoRA          adapter.Config
	Quantization  *quant.Config
	Device        string
	Devices       string // devices that share each step, each with one micro-batch; as in a configuration
	Precision     string // as in train.Config
	FrozenGEMM    string // as in train.Config; empty = bf16
	Dequantised   bool   // keep quantised weights dequantised
	Checkpointing string // none, selective, full, offload, or auto: the fastest that fits
	BaseSharding  string // auto, never or always: the base model is sharded over several devices; "" = auto
	Context       int    // devices that share each row's tokens; 0 = each has whole rows
	// Memory limit of the plan, as session.ParseBytes reads it; "" = the free memory with auto, else no limit.
	VRAM string
	Chip *graph.Chip // plan for this GPU, which this computer does not have, and run nothing
}

// Run times training steps of a shape.
func Run(ctx context.Context, o Options, env session.Env) (r Report, err error) {
	s := train.DefaultSpec()
	s.Device, s.Devices, s.Training.ContextParallelSize = o.Device, o.Devices, o.Context
	if o.Chip != nil { // nothing is run
		if o.ranks, err = s.RanksAsked(); err == nil {
			err = s.CheckSharing(o.ranks)
		}
		if err != nil {
			return r, err
		}
		return run(ctx, o, train.Env{Env: env})
	}
	err = train.Together(ctx, s, train.Env{Env: env}, func(ctx context.Context, _ train.Spec, env train.Env) error {
		own := o
		own.Measure = o.of(env)
		own.share = o.Context
		one, err := run(ctx, own, env)
		if rank, _ := env.Rank(); rank == 0 {
			r = one
		}
		return err
	})
	return r, err
}

func run(ctx context.Context, o Options, env train.Env) (r Report, err error) {
	began := time.Now()
	cfg, err := Shape(o.Shape)
	if err != nil {
		return r, err
	}
	on, err := o.machine(env.Env)
	if err != nil {
		return r, err
	}
	leave, err := env.Join(on)
	if err != nil {
		return r, errors.Join(err, on.Close())
	}
	defer func() {
		err = errors.Join(err, on.Close())
		leave()
	}()
	found, err := plan(o, cfg, on)
	if err != nil {
		return r, err
	}
	planned := found.Step
	r = newReport(on, env.Env)
	r.Ranks = o.reported()
	r.Shape, r.Batch, r.Length, r.Tokens, r.Layout = o.Shape, o.Batch, o.Length, o.Batch*o.Length, found.Layout.String()
	r.Held, r.Parts, r.Peak = found.Need.Total(), train.Categories(found.Need), planned.Plan.Peak()
	r.Planned, r.Kernels, r.Trained = time.Since(began).Seconds(), planned.Plan.Calls(), planned.Trained.Numbers()
	r.Work = o.work()
	window := randomWindow(o, cfg.VocabSize)
	if rates, ok := graph.RatesOf(on); ok {
		r.Estimated = 1e3 * step.Seconds([]*step.Step{planned}, rates, 1, window.Batches)
	}
	if o.Chip != nil {
		return r, nil
	}
	random := newRandomWeights()
	m, err := session.Hold(on, func(store graph.Store) error {
		if err := planned.Net.Load(ctx, random, store, on.Workers()); err != nil {
			return err
		}
		return randomAdapter(planned.Trained, store, random)
	}, &planned.Program)
	if err != nil {
		return r, err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, m.Close())
		}
	}()
	if _, err := planned.StartScaling(m, train.Default().LossScale); err != nil {
		return r, err
	}
	rank, _ := env.Rank()
	pipeline, err := step.NewPipeline([]*step.Step{planned}, m, m.Runs, on, rank, 1, 0)
	if err != nil {
		return r, err
	}
	r.Held, r.Parts, r.Load = m.Bytes().Total(), train.Categories(m.Bytes()), time.Since(began).Seconds()
	b := subject{pipeline: pipeline, async: on.Capabilities().Async, next: func() (step.Window, error) {
		window.Number++
		return window, nil
	}}
	if err := b.measure(ctx, o.Measure, &r); err != nil {
		return r, err
	}
	if math.IsNaN(r.Loss) {
		return r, fmt.Errorf("bench: %w: the loss is not a number", train.ErrNotFinite)
	}
	closed = true
	if err := m.Close(); err != nil { // frees memory for the ceilings
		return r, err
	}
	return r, r.ceilings(on, o.Measure)
}

// work returns a name of what is timed, so that two reports of different work are not compared.
func (o Options) work() string {
	text := fmt.Sprintf("shape %s %dx%d %+v quantised %+v dequantised %v", o.Shape, o.Batch, o.Length, o.LoRA, o.Quantization, o.Dequantised)
	if o.ranks > 1 {
		text += fmt.Sprintf(" on %d devices, base_sharding %s", o.ranks, cmp.Or(o.BaseSharding, "auto"))
		if o.Context > 1 {
			text += fmt.Sprintf(", rows shared by %d", o.Context)
		}
	}
	return hashOf(text)
}

// numbers returns the precision as session.OpenMachine takes it.
func (o Options) numbers() string {
	return train.Config{Precision: o.Precision, FrozenGEMM: o.FrozenGEMM}.Numbers()
}

// machine returns the machine that the steps run on, or are planned for.
func (o Options) machine(env session.Env) (graph.Machine, error) {
	if o.Chip != nil {
		return session.MachineFor(*o.Chip, o.numbers(), env)
	}
	return session.OpenMachine(o.Device, o.numbers(), env)
}

// limit returns the memory limit of a plan in bytes; below 0 = no limit.
func (o Options) limit(on graph.Machine) (int64, error) {
	switch {
	case o.VRAM != "":
		n, err := session.ParseBytes(o.VRAM)
		if err != nil {
			return 0, fmt.Errorf("bench: vram: %w", err)
		}
		return n, nil
	case o.Checkpointing == "auto":
		free, known, err := on.FreeMemory()
		if err != nil || known {
			return max(free, 0), err
		}
	}
	return -1, nil
}

// plan plans a step as a run does.
func plan(o Options, cfg model.Config, on graph.Machine) (found session.Found[*step.Step], err error) {
	build, err := families.For(cfg)
	if err != nil {
		return found, err
	}
	c := train.Default()
	c.GradientCheckpointing, c.DequantisedWeights = o.Checkpointing, "never"
	if o.BaseSharding != "" {
		c.BaseSharding = o.BaseSharding
	}
	if o.Dequantised {
		c.DequantisedWeights = "always"
	}
	if !slices.Contains([]string{"auto", "never", "always"}, c.BaseSharding) {
		return found, fmt.Errorf("bench: base_sharding %q is not one of auto, never, always", c.BaseSharding)
	}
	if err := c.Layout().Check(o.ranks); err != nil {
		return found, fmt.Errorf("bench: %w", err)
	}
	layouts := c.Layout().Layouts(on.Capabilities(), o.Quantization != nil, o.ranks)
	if len(layouts) == 0 {
		return found, fmt.Errorf("bench: checkpointing %q is not one of auto, none, selective, full, offload", o.Checkpointing)
	}
	limit, err := o.limit(on)
	if err != nil {
		return found, err
	}
	nw := session.Network{Config: cfg, Build: build, Float: kernel.F32, Scheme: o.Quantization, Method: adapter.Methods[adapter.DefaultMethod], Adapter: o.LoRA, Adapted: true, Ranks: o.Context}
	shape := session.Shape{Tokens: o.Batch * o.Length, Sequences: o.Batch, MaxLen: o.Length}
	caps := on.Capabilities()
	var seconds func(*step.Step) float64
	if rates, ok := graph.RatesOf(on); ok && o.Checkpointing == "auto" {
		seconds = func(s *step.Step) float64 { return step.MicroSeconds(s, rates) }
	}
	found, err = session.Search[*step.Step]{
		Seconds: seconds,
		Layouts: layouts, Limit: limit, Layers: cfg.NumLayers, LossRows: min(caps.LogitRows, shape.Tokens), Overlaps: caps.Overlap,
		Try: func(l session.Layout) (p session.Planned[*step.Step], err error) {
			nw.Layout, p.Layout = l, l
			if p.Step, err = step.Plan(nw, shape, c.Step(objective.Of(objective.Default, objective.Config{})), step.SummingOf(1, o.ranks), on); err != nil {
				return p, err
			}
			p.Need, err = graph.Need(p.Step.Plan)
			return p, err
		},
	}.Run()
	if err == nil && !found.Fits {
		err = fmt.Errorf("bench: %w: with %v the plan needs %s, the limit is %s", session.ErrDoesNotFit, found.Layout,
			session.FormatBytes(found.Need.Total()), session.FormatBytes(limit))
	}
	return found, err
}
