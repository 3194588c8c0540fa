package train

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/quant"
)

// Shapes are models known by their sizes alone, for benchmarks on random weights.
var Shapes = map[string]model.Config{
	"smollm2-135m":   llamaShape(49152, 576, 1536, 30, 9, 3, 64, true),
	"tinyllama-1.1b": llamaShape(32000, 2048, 5632, 22, 32, 4, 64, false),
	"llama-2-7b":     llamaShape(32000, 4096, 11008, 32, 32, 32, 128, false),
	"llama-3.1-8b":   llamaShape(128256, 4096, 14336, 32, 32, 8, 128, false),
}

func llamaShape(vocab, hidden, inner, layers, heads, kv, head int, tied bool) model.Config {
	return model.Config{ModelType: "llama", VocabSize: vocab, HiddenSize: hidden, IntermediateSize: inner, NumLayers: layers,
		NumHeads: heads, NumKVHeads: kv, HeadDim: head, RMSNormEps: 1e-5, RopeTheta: 10000, MaxPositions: 8192, TieEmbeddings: tied, HiddenAct: "silu"}
}

// BenchOptions are one benchmark: steps of a shape on random weights and tokens.
type BenchOptions struct {
	Shape         string
	Batch, Length int // rows and tokens a row
	LoRA          adapter.Config
	Quantization  *quant.Config
	Warmup, Steps int
	Device        string
	Precision     string // as in Config
	Decoded       bool   // keep quantised weights decoded
	Checkpointing string // none, selective, full or offload
}

// BenchReport is what a benchmark measured. Times are milliseconds of whole steps, each waited for, the loss
// read back; Ahead is a step's share of as many where the next one is queued before a loss is read, as in a run.
type BenchReport struct {
	Shape   string         `json:"shape"`
	Device  string         `json:"device"`
	Tokens  int            `json:"tokens_per_step"`
	Median  float64        `json:"median_ms"`
	Fastest float64        `json:"fastest_ms"`
	Slowest float64        `json:"slowest_ms"`
	Ahead   float64        `json:"ahead_ms"`
	PerSec  float64        `json:"tokens_per_second"`
	Held    int64          `json:"held_bytes"`
	Parts   []PlanCategory `json:"categories"`
	Load    float64        `json:"load_s"`       // plan, memory, random weights quantised
	First   float64        `json:"first_step_s"` // the first step alone
	Loss    float64        `json:"loss"`
	Kernels map[string]int `json:"calls"`            // kernel calls by segment
	Queued  int            `json:"queued,omitempty"` // launches, fills and copies of a step on a GPU
	Profile []ProfileLine  `json:"profile,omitempty"`
}

// ProfileLine is the time of all calls of one kernel in a step.
type ProfileLine struct {
	Kernel string  `json:"kernel"`
	Calls  int     `json:"calls"`
	Ms     float64 `json:"ms"`
}

// Profiler is a runner that can time its calls one by one and count what it queues for segments.
type Profiler interface {
	Profile(segment string, see func(name string, ms float64)) error
	Queued(segments ...string) (int, error)
}

// Bench times training steps.
func Bench(ctx context.Context, o BenchOptions, env Env) (BenchReport, error) {
	began := time.Now()
	cfg, ok := Shapes[o.Shape]
	if !ok {
		names := make([]string, 0, len(Shapes))
		for n := range Shapes {
			names = append(names, n)
		}
		sort.Strings(names)
		return BenchReport{}, fmt.Errorf("bench: shape %q is not one of %s", o.Shape, strings.Join(names, ", "))
	}
	on, err := openMachine(o.Device, o.Precision, env)
	if err != nil {
		return BenchReport{}, err
	}
	defer on.Close() //nolint:errcheck // the report is what matters
	build, err := families.For(cfg)
	if err != nil {
		return BenchReport{}, err
	}
	nw := network{Config: cfg, Build: build, Float: kernel.F32, Scheme: o.Quantization, Decoded: o.Decoded, Method: adapter.Methods[adapter.DefaultMethod], Adapter: o.LoRA, Adapted: true}
	M := o.Batch * o.Length
	modes, ok := checkpointing[o.Checkpointing]
	if !ok || len(modes) != 1 {
		return BenchReport{}, fmt.Errorf("bench: checkpointing %q is not one of none, selective, full, offload", o.Checkpointing)
	}
	again := modes[0]
	step, err := benchStep(nw, shape{M, o.Batch, o.Length}, again, on)
	if err != nil {
		return BenchReport{}, err
	}
	store, err := on.NewStore(step.plan)
	if err != nil {
		return BenchReport{}, err
	}
	defer store.Close() //nolint:errcheck // the report is what matters
	if err := step.net.Load(ctx, noise{}, store, on.Workers()); err != nil {
		return BenchReport{}, err
	}
	run, err := on.Bind(step.plan, store)
	if err != nil {
		return BenchReport{}, err
	}
	in, err := bindBatch(store, "")
	if err != nil {
		return BenchReport{}, err
	}
	for i := range in.ids {
		in.ids[i] = int32(splitmix(uint64(i)) % uint64(cfg.VocabSize))
		in.positions[i] = int32(i % o.Length)
	}
	for i := range in.cu {
		in.cu[i] = int32(i * o.Length)
	}
	trained := shiftLabels(in.labels, in.ids, in.cu)
	in.scale[0] = 1 / float32(trained)
	if err := step.startScaling(store, Default()); err != nil {
		return BenchReport{}, err
	}
	if err := initRandom(step, store); err != nil {
		return BenchReport{}, err
	}
	r := BenchReport{Shape: o.Shape, Device: on.Name(), Tokens: M, Held: store.Bytes().Total(), Parts: categories(store.Bytes()),
		Load: time.Since(began).Seconds(), Kernels: step.plan.Calls()}
	b := benchRun{run: run, in: in}
	if b.numbers, err = run.Reader(step.loss); err != nil {
		return r, err
	}
	if err := b.measure(ctx, o, &r); err != nil {
		return r, err
	}
	if math.IsNaN(r.Loss) {
		return r, fmt.Errorf("bench: %w: the loss is not a number", ErrNotFinite)
	}
	if p, ok := run.(Profiler); ok {
		for _, s := range [][]string{wholeGradients, updateAlone} {
			n, err := p.Queued(s...)
			if err != nil {
				return r, err
			}
			r.Queued += n
		}
		r.Profile, err = profile(p)
	}
	return r, err
}

// benchStep plans a step as a run with room enough would.
func benchStep(nw network, s shape, again graph.Recompute, on graph.Machine) (*trainStep, error) {
	plain, err := newTrainStep(nw, s, Default(), again, 0, on)
	if err != nil || !spaces(on, again) {
		return plain, err
	}
	nw.Spaced = true
	spaced, err := newTrainStep(nw, s, Default(), again, 0, on)
	if err != nil {
		return nil, err
	}
	need, err := graph.Need(plain.plan)
	if err != nil {
		return nil, err
	}
	more, err := graph.Need(spaced.plan)
	if err != nil || !spacedIsCheap(more.Total(), need.Total()) {
		return plain, err
	}
	return spaced, nil
}

// benchRun takes the same step again and again.
type benchRun struct {
	run     graph.Runner
	in      batchMemory
	numbers graph.Reader
	steps   int
}

// measure times steps that are waited for, then steps that are not.
func (b *benchRun) measure(ctx context.Context, o BenchOptions, r *BenchReport) error {
	times := make([]float64, 0, o.Steps)
	for i := range o.Warmup + o.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := time.Now()
		if err := b.queue(func() error { return nil }); err != nil {
			return err
		}
		read, err := b.numbers.Next()
		if err != nil {
			return err
		}
		r.Loss = float64(read[0].F32()[0])
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
			_, err := b.numbers.Next()
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err := b.numbers.Next()
	r.Ahead = float64(time.Since(at).Nanoseconds()) / 1e6 / float64(o.Steps)
	return err
}

// queue queues a step as a run does; between comes before the update.
func (b *benchRun) queue(between func() error) error {
	b.steps++
	for k, v := range hyper(Default(), 1e-4, b.steps) {
		b.in.hyper[k] = float32(v)
	}
	if err := b.in.put(); err != nil {
		return err
	}
	if err := b.run.Run(wholeGradients...); err != nil {
		return err
	}
	if err := between(); err != nil {
		return err
	}
	if err := b.run.Run(updateAlone...); err != nil {
		return err
	}
	return b.numbers.Queue()
}

// profile times a step's calls one by one.
func profile(p Profiler) ([]ProfileLine, error) {
	sums := map[string]*ProfileLine{}
	for _, s := range []string{segmentBegin, segmentMicro, segmentNorm, segmentUpdate} {
		err := p.Profile(s, func(name string, ms float64) {
			if sums[name] == nil {
				sums[name] = &ProfileLine{Kernel: name}
			}
			sums[name].Calls++
			sums[name].Ms += ms
		})
		if err != nil {
			return nil, err
		}
	}
	lines := make([]ProfileLine, 0, len(sums))
	for _, l := range sums {
		lines = append(lines, *l)
	}
	sort.Slice(lines, func(i, j int) bool {
		return lines[i].Ms > lines[j].Ms || lines[i].Ms == lines[j].Ms && lines[i].Kernel < lines[j].Kernel
	})
	return lines, nil
}

// noise gives weights of random numbers: uniform, with the spread that keeps activations near one, whatever the
// pieces they are read in.
type noise struct{}

// noiseBlock is how many numbers follow from one seed.
const noiseBlock = 4096

func (noise) Float32s(name string, from int, dst []float32) error {
	if strings.HasSuffix(name, "norm.weight") {
		for i := range dst {
			dst[i] = 1
		}
		return nil
	}
	seed := uint64(len(name))<<40 ^ uint64(name[len(name)/2])<<32
	for len(dst) > 0 {
		block, skip := from/noiseBlock, from%noiseBlock
		x := splitmix(seed ^ uint64(block))
		for range skip {
			x = x*noiseFactor + noiseStep
		}
		n := min(noiseBlock-skip, len(dst))
		for i := range dst[:n] {
			x = x*noiseFactor + noiseStep
			dst[i] = float32(int32(x>>32)) * (0.035 / (1 << 31))
		}
		dst, from = dst[n:], from+n
	}
	return nil
}

// noiseFactor and noiseStep are Knuth's of a linear congruential generator modulo 2^64.
const (
	noiseFactor = 6364136223846793005
	noiseStep   = 1442695040888963407
)

// initRandom gives A and B random numbers, so that no gradient is zero.
func initRandom(step *trainStep, store graph.Store) error {
	params, err := step.trained.Snapshot(store)
	if err != nil {
		return err
	}
	for _, p := range params {
		if err := (noise{}).Float32s(p.Name, 0, p.Data); err != nil {
			return err
		}
	}
	return step.trained.Restore(store, params)
}
