// Package bench times training steps of models known by their sizes alone, on random weights.
package bench

import (
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
)

// Options are one benchmark: steps of a shape on random weights and tokens.
type Options struct {
	Shape         string
	Batch, Length int // rows and tokens a row
	LoRA          adapter.Config
	Quantization  *quant.Config
	Warmup, Steps int
	Device        string
	Precision     string      // as in Config
	Dequantised   bool        // keep quantised weights dequantised
	Checkpointing string      // none, selective, full, offload, or auto: the fastest that fits
	VRAM          string      // memory that a plan may hold, as session.ParseBytes reads it; "" = what auto finds free, else no limit
	Chip          *graph.Chip // plan for this GPU, which is not here, and run nothing
}

// Report is what a benchmark measured. Times are milliseconds of whole steps, each waited for, the loss
// read back; Pipelined is a step's share of as many where the next one is queued before a loss is read, as in a run.
type Report struct {
	Shape     string               `json:"shape"`
	Device    string               `json:"device"`
	Tokens    int                  `json:"tokens_per_step"`
	Median    float64              `json:"median_ms"`
	Fastest   float64              `json:"fastest_ms"`
	Slowest   float64              `json:"slowest_ms"`
	Pipelined float64              `json:"ahead_ms"`
	PerSec    float64              `json:"tokens_per_second"`
	Trained   int64                `json:"trained_parameters"`
	Layout    string               `json:"layout"`
	Held      int64                `json:"held_bytes"`
	Parts     []train.PlanCategory `json:"categories"`
	Peak      []graph.Living       `json:"peak"` // of the arena, by kernel
	Planned   float64              `json:"plan_s"`
	Load      float64              `json:"load_s"`       // plan, memory, random weights quantised
	First     float64              `json:"first_step_s"` // the first step alone
	Loss      float64              `json:"loss"`
	Kernels   map[string]int       `json:"calls"`            // kernel calls by segment
	Queued    int                  `json:"queued,omitempty"` // launches, fills and copies of a step on a GPU
	Profile   []ProfileLine        `json:"profile,omitempty"`
}

// Run times training steps.
func Run(ctx context.Context, o Options, env session.Env) (r Report, err error) {
	began := time.Now()
	cfg, err := Shape(o.Shape)
	if err != nil {
		return r, err
	}
	on, err := o.machine(env)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	found, err := plan(o, cfg, on)
	if err != nil {
		return r, err
	}
	step := found.Step
	r = Report{Shape: o.Shape, Device: on.Name(), Tokens: o.Batch * o.Length, Layout: found.Layout.String(), Held: found.Need.Total(),
		Parts: train.Categories(found.Need), Peak: step.Plan.Peak(), Planned: time.Since(began).Seconds(), Kernels: step.Plan.Calls()}
	for _, p := range step.Trained.Params {
		r.Trained += int64(p.Type.Elems())
	}
	if o.Chip != nil {
		return r, nil
	}
	random := newRandomWeights()
	m, err := session.Hold(on, func(store graph.Store) error {
		if err := step.Net.Load(ctx, random, store, on.Workers()); err != nil {
			return err
		}
		return randomAdapter(step.Trained, store, random)
	}, &step.Program)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if _, err := step.StartScaling(m, train.Default()); err != nil {
		return r, err
	}
	pipeline, err := train.NewPipeline([]*train.Step{step}, m, m.Runs, on, 1, 0)
	if err != nil {
		return r, err
	}
	r.Held, r.Parts, r.Load = m.Bytes().Total(), train.Categories(m.Bytes()), time.Since(began).Seconds()
	b := steps{pipeline: pipeline, window: randomWindow(o, cfg.VocabSize)}
	if err := b.measure(ctx, o, &r); err != nil {
		return r, err
	}
	if math.IsNaN(r.Loss) {
		return r, fmt.Errorf("bench: %w: the loss is not a number", train.ErrNotFinite)
	}
	err = r.profile(m.Runs[0])
	return r, err
}

// machine is what the steps run on, or are planned for.
func (o Options) machine(env session.Env) (graph.Machine, error) {
	if o.Chip != nil {
		return session.MachineFor(*o.Chip, o.Precision, env)
	}
	return session.OpenMachine(o.Device, o.Precision, env)
}

// limit is the memory that a plan may hold; below 0 = no limit.
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
func plan(o Options, cfg model.Config, on graph.Machine) (found session.Found[*train.Step], err error) {
	build, err := families.For(cfg)
	if err != nil {
		return found, err
	}
	c := train.Default()
	c.GradientCheckpointing, c.DequantisedWeights = o.Checkpointing, "never"
	if o.Dequantised {
		c.DequantisedWeights = "always"
	}
	layouts := train.Layouts(c, o.Quantization != nil, on)
	if len(layouts) == 0 {
		return found, fmt.Errorf("bench: checkpointing %q is not one of auto, none, selective, full, offload", o.Checkpointing)
	}
	limit, err := o.limit(on)
	if err != nil {
		return found, err
	}
	nw := session.Network{Config: cfg, Build: build, Float: kernel.F32, Scheme: o.Quantization, Method: adapter.Methods[adapter.DefaultMethod], Adapter: o.LoRA, Adapted: true}
	shape := session.Shape{Tokens: o.Batch * o.Length, Sequences: o.Batch, MaxLen: o.Length}
	caps := on.Capabilities()
	found, err = session.Search[*train.Step]{
		Layouts: layouts, Limit: limit, Layers: cfg.NumLayers, LossRows: min(caps.LogitRows, shape.Tokens), Overlaps: caps.Overlap,
		Try: func(l session.Layout) (p session.Planned[*train.Step], err error) {
			nw.Layout, p.Layout = l, l
			if p.Step, err = train.PlanStep(nw, shape, c, nil, on); err != nil {
				return p, err
			}
			p.Need, err = graph.Need(p.Step.Plan)
			return p, err
		},
	}.Run()
	if err == nil && !found.Fits {
		err = fmt.Errorf("bench: %w: with %v the plan holds %s, %s may be held", session.ErrDoesNotFit, found.Layout,
			session.FormatBytes(found.Need.Total()), session.FormatBytes(limit))
	}
	return found, err
}

// steps takes the same step again and again.
type steps struct {
	pipeline *train.Pipeline
	window   train.Window
}

// measure times steps that are waited for, then steps that are not.
func (b *steps) measure(ctx context.Context, o Options, r *Report) error {
	times := make([]float64, 0, o.Steps)
	for i := range o.Warmup + o.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := time.Now()
		if err := b.queue(func() error { return nil }); err != nil {
			return err
		}
		numbers, err := b.pipeline.Numbers()
		if err != nil {
			return err
		}
		r.Loss = numbers.Loss
		took := time.Since(at)
		if i == 0 {
			r.First = took.Seconds()
		}
		if i >= o.Warmup {
			times = append(times, float64(took.Nanoseconds())/1e6)
		}
	}
	slices.Sort(times)
	r.Median, r.Fastest, r.Slowest = times[len(times)/2], times[0], times[len(times)-1]
	r.PerSec = float64(r.Tokens) / r.Median * 1e3
	at := time.Now()
	for i := range o.Steps {
		err := b.queue(func() error {
			if i == 0 {
				return nil
			}
			_, err := b.pipeline.Numbers()
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err := b.pipeline.Numbers()
	r.Pipelined = float64(time.Since(at).Nanoseconds()) / 1e6 / float64(o.Steps)
	return err
}

// queue queues a step as a run does; between comes before the update.
func (b *steps) queue(between func() error) error {
	b.window.Number++
	if err := b.pipeline.Gradients(b.window); err != nil {
		return err
	}
	if err := between(); err != nil {
		return err
	}
	return b.pipeline.Update()
}
