// Package bench times training steps of models known by their sizes alone, on random weights.
package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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

// Shapes are models known by their sizes alone, for benchmarks on random weights.
var Shapes = map[string]model.Config{
	"smollm2-135m":   llamaShape(49152, 576, 1536, 30, 9, 3, 64, true),
	"tinyllama-1.1b": llamaShape(32000, 2048, 5632, 22, 32, 4, 64, false),
	"llama-2-7b":     llamaShape(32000, 4096, 11008, 32, 32, 32, 128, false),
	"llama-3.1-8b":   llamaShape(128256, 4096, 14336, 32, 32, 8, 128, false),
	"qwen3-8b":       qwen3Shape(151936, 4096, 12288, 36, 32, 8, 128, false),
}

func llamaShape(vocab, hidden, inner, layers, heads, kv, head int, tied bool) model.Config {
	return model.Config{ModelType: "llama", VocabSize: vocab, HiddenSize: hidden, IntermediateSize: inner, NumLayers: layers,
		NumHeads: heads, NumKVHeads: kv, HeadDim: head, RMSNormEps: 1e-5, RopeTheta: 10000, MaxPositions: 8192, TieEmbeddings: tied, HiddenAct: "silu"}
}

func qwen3Shape(vocab, hidden, inner, layers, heads, kv, head int, tied bool) model.Config {
	c := llamaShape(vocab, hidden, inner, layers, heads, kv, head, tied)
	c.ModelType, c.QKNorm, c.RMSNormEps, c.RopeTheta = "qwen3", true, 1e-6, 1e6
	return c
}

// Options are one benchmark: steps of a shape on random weights and tokens.
type Options struct {
	Shape         string
	Batch, Length int // rows and tokens a row
	LoRA          adapter.Config
	Quantization  *quant.Config
	Warmup, Steps int
	Device        string
	Precision     string // as in Config
	Dequantised   bool   // keep quantised weights dequantised
	Checkpointing string // none, selective, full or offload
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
	Held      int64                `json:"held_bytes"`
	Parts     []train.PlanCategory `json:"categories"`
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
	cfg, ok := Shapes[o.Shape]
	if !ok {
		return r, fmt.Errorf("bench: shape %q is not one of %s", o.Shape, strings.Join(slices.Sorted(maps.Keys(Shapes)), ", "))
	}
	layout, ok := layouts[o.Checkpointing]
	if !ok {
		return r, fmt.Errorf("bench: checkpointing %q is not one of none, selective, full, offload", o.Checkpointing)
	}
	layout.Dequantised = o.Dequantised
	on, err := session.OpenMachine(o.Device, o.Precision, env)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	step, err := plan(o, cfg, layout, on)
	if err != nil {
		return r, err
	}
	m, err := session.Hold(on, func(store graph.Store) error {
		if err := step.Net.Load(ctx, randomWeights{}, store, on.Workers()); err != nil {
			return err
		}
		return randomAdapter(step.Trained, store)
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
	r = Report{Shape: o.Shape, Device: on.Name(), Tokens: o.Batch * o.Length, Held: m.Bytes().Total(), Parts: train.Categories(m.Bytes()),
		Load: time.Since(began).Seconds(), Kernels: step.Plan.Calls()}
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

// layouts are those of a value of Options.Checkpointing.
var layouts = map[string]session.Layout{
	"none":      {Recompute: graph.KeepAll},
	"selective": {Recompute: graph.RecomputeCheap},
	"full":      {Recompute: graph.RecomputeLayers},
	"offload":   {Recompute: graph.Offload},
}

// plan plans a step as a run with enough memory would.
func plan(o Options, cfg model.Config, layout session.Layout, on graph.Machine) (*train.Step, error) {
	build, err := families.For(cfg)
	if err != nil {
		return nil, err
	}
	nw := session.Network{Config: cfg, Build: build, Float: kernel.F32, Scheme: o.Quantization, Method: adapter.Methods[adapter.DefaultMethod], Adapter: o.LoRA, Adapted: true}
	shape := session.Shape{Tokens: o.Batch * o.Length, Sequences: o.Batch, MaxLen: o.Length}
	found, err := session.Search[*train.Step]{
		Layouts: []session.Layout{layout}, Limit: -1, Overlaps: on.Capabilities().Overlap,
		Try: func(l session.Layout) (p session.Planned[*train.Step], err error) {
			nw.Layout, p.Layout = l, l
			if p.Step, err = train.PlanStep(nw, shape, train.Default(), nil, on); err != nil {
				return p, err
			}
			p.Need, err = graph.Need(p.Step.Plan)
			return p, err
		},
	}.Run()
	return found.Step, err
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
