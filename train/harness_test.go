package train

import (
	"context"
	"math"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/optimizer"
	"github.com/tierlora/tierlora/train/step"
)

// crossEntropy is the objective of a configuration that names none.
var crossEntropy = objective.Of(objective.Default, objective.Config{})

// prepare reads model and data on the device that the configuration names, and plans.
func prepare(ctx context.Context, s Spec, env Env) (*prepared, error) {
	on, err := session.OpenMachine(s.Device, s.Training.Precision, env.Env)
	if err != nil {
		return nil, err
	}
	return prepareOn(ctx, s, env, on)
}

func stories(t testing.TB) *session.Base {
	t.Helper()
	b, err := session.OpenBase(context.Background(), golden.StoriesDir(t), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func network(t testing.TB, b *session.Base, float kernel.DType, scheme *quant.Config,
	c *adapter.Config) session.Network {
	t.Helper()
	build, err := families.For(b.Config)
	if err != nil {
		t.Fatal(err)
	}
	nw := session.Network{Config: b.Config, Build: build, Float: float, Scheme: scheme, Method: adapter.Methods["lora"]}
	if c != nil {
		nw.Adapter, nw.Adapted = *c, true
	}
	nw.Keep(b)
	return nw
}

// testStep is a training step with memory, loaded, its adapter read from a PEFT folder.
type testStep struct {
	*step.Step
	memory graph.Store
	run    graph.Runner
}

func newTestStep(t testing.TB, b *session.Base, nw session.Network, s session.Shape, c Config, workers int,
	adapterDir string) *testStep {
	t.Helper()
	return newTestStepOn(t, graph.NewCPU(workers), b, nw, s, c, adapterDir)
}

func newTestStepOn(t testing.TB, on graph.Machine, b *session.Base, nw session.Network, s session.Shape, c Config,
	adapterDir string) *testStep {
	t.Helper()
	planned, err := step.Plan(nw, s, c.Step(crossEntropy), step.Summing{}, on)
	if err != nil {
		t.Fatal(err)
	}
	return bound(t, on, b, planned, c, adapterDir)
}

// bound gives a step memory, base weights and a PEFT folder's adapter.
func bound(t testing.TB, on graph.Machine, b *session.Base, planned *step.Step, c Config, adapterDir string) *testStep {
	t.Helper()
	if err := b.Check(planned.Net); err != nil {
		t.Fatal(err)
	}
	m, err := session.Hold(on, func(m graph.Store) error { return b.Load(context.Background(), planned.Net, m, 2) },
		&planned.Program)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := planned.StartScaling(m, c.LossScale); err != nil {
		t.Fatal(err)
	}
	ts := &testStep{Step: planned, memory: m, run: m.Runs[0]}
	saved, err := adapter.Open(adapterDir)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	params, err := planned.Trained.Snapshot(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := saved.Read(params); err != nil {
		t.Fatal(err)
	}
	if err := planned.Trained.Restore(m, params); err != nil {
		t.Fatal(err)
	}
	return ts
}

// adamNumbers are what AdamW reads in step t.
func adamNumbers(c Config, lr float64, t int) [optimizer.NumbersSize]float64 {
	return optimizer.Optimizers["adamw"](c.optimizer()).Numbers(lr, t)
}

func (ts *testStep) ints(t testing.TB, name string) []int32 {
	t.Helper()
	x, err := ts.memory.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return x.I32()
}

func (ts *testStep) set(t testing.TB, name string, v ...float64) {
	t.Helper()
	x, err := ts.memory.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range v {
		if x.DType == kernel.F64 {
			x.F64()[i] = f
		} else {
			x.F32()[i] = float32(f)
		}
	}
}

// step sends the batch, which goes as a whole, and runs all segments.
func (ts *testStep) step(t testing.TB) {
	t.Helper()
	if err := ts.memory.Put("input_ids", "cu_seqlens", "labels", "loss scale", "optimizer"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{step.SegmentBegin, step.SegmentMicro, step.SegmentNorm, step.SegmentUpdate} {
		if err := ts.run.Run(s); err != nil {
			t.Fatal(err)
		}
	}
}

// schemeOf is the storage that a reference curve's name stands for.
func schemeOf(name string) *quant.Config {
	c := quant.Default()
	switch name {
	case "qlora_nf4":
		c.DoubleQuant = false
	case "qlora_nf4_double":
	default:
		return nil
	}
	return &c
}

func (ts *testStep) read(t testing.TB, v *graph.Value) []float64 {
	t.Helper()
	x, err := ts.run.Read(v)
	if err != nil {
		t.Fatal(err)
	}
	return numbers(x)
}

func (ts *testStep) snapshot(t testing.TB) []adapter.Param {
	t.Helper()
	p, err := ts.Trained.Snapshot(ts.memory)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func numbers(x kernel.Tensor) []float64 {
	if x.DType == kernel.F64 {
		return x.F64()
	}
	out := make([]float64, x.Elems())
	for i, v := range x.F32() {
		out[i] = float64(v)
	}
	return out
}

// fill writes rows of T tokens as one micro-batch and returns the trained tokens.
func (ts *testStep) fill(t testing.TB, ids, labels []int32, T int) int {
	t.Helper()
	copy(ts.ints(t, "input_ids"), ids)
	cu, lab := ts.ints(t, "cu_seqlens"), ts.ints(t, "labels")
	if positions, err := ts.memory.Tensor("positions"); err == nil { // a model whose layers use no positions has none
		for i := range positions.I32() {
			positions.I32()[i] = int32(i % T)
		}
	}
	for i := range cu {
		cu[i] = int32(i * T)
	}
	if real, err := ts.memory.Tensor("real_tokens"); err == nil {
		for i := range real.I32() {
			real.I32()[i] = 1
		}
		if err := ts.memory.Put("real_tokens"); err != nil {
			t.Fatal(err)
		}
	}
	return objective.ShiftLabels(lab, labels, cu)
}

// distance is ‖got-want‖ / ‖want‖.
func distance(got, want []float64) float64 {
	var d, n float64
	for i := range want {
		d += (got[i] - want[i]) * (got[i] - want[i])
		n += want[i] * want[i]
	}
	return math.Sqrt(d / n)
}
