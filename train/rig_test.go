package train

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/quant"
)

func stories(t testing.TB) *base {
	t.Helper()
	b, err := openBase(context.Background(), filepath.Join(golden.Root(t), "configs", "assets", "stories260K"), Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.close() })
	return b
}

func (b *base) network(t testing.TB, float kernel.DType, scheme *quant.Config, c *adapter.Config) network {
	t.Helper()
	build, err := families.For(b.config)
	if err != nil {
		t.Fatal(err)
	}
	nw := network{Config: b.config, Build: build, Float: float, Scheme: scheme, Method: adapter.Methods["lora"]}
	if c != nil {
		nw.Adapter, nw.Adapted = *c, true
	}
	return nw
}

// testStep is a training step with memory, loaded, its adapter read from a PEFT folder.
type testStep struct {
	*trainStep
	memory graph.Store
	run    graph.Runner
}

func newTestStep(t testing.TB, b *base, nw network, s shape, c Config, workers int, adapterDir string) *testStep {
	t.Helper()
	return newTestStepOn(t, graph.NewCPU(workers), b, nw, s, c, adapterDir)
}

func newTestStepOn(t testing.TB, on graph.Machine, b *base, nw network, s shape, c Config, adapterDir string) *testStep {
	t.Helper()
	step, err := newTrainStep(nw, s, c, graph.KeepAll, 0, on)
	if err != nil {
		t.Fatal(err)
	}
	m, err := on.NewStore(step.plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.check(step.net); err != nil {
		t.Fatal(err)
	}
	if err := b.load(context.Background(), step.net, m, 2); err != nil {
		t.Fatal(err)
	}
	if err := step.startScaling(m, c); err != nil {
		t.Fatal(err)
	}
	ts := &testStep{trainStep: step, memory: m}
	saved, err := adapter.Open(adapterDir)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	params, err := step.trained.Snapshot(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := saved.Read(params); err != nil {
		t.Fatal(err)
	}
	if err := step.trained.Restore(m, params); err != nil {
		t.Fatal(err)
	}
	if ts.run, err = on.Bind(step.plan, m); err != nil {
		t.Fatal(err)
	}
	return ts
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

// step sends the batch and runs all segments.
func (ts *testStep) step(t testing.TB) {
	t.Helper()
	if err := ts.memory.Put("input_ids", "positions", "cu_seqlens", "labels", "loss scale", "optimizer"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{segmentBegin, segmentMicro, segmentNorm, segmentUpdate} {
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
	p, err := ts.trained.Snapshot(ts.memory)
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
	pos, cu, lab := ts.ints(t, "positions"), ts.ints(t, "cu_seqlens"), ts.ints(t, "labels")
	for i := range pos {
		pos[i] = int32(i % T)
	}
	for i := range cu {
		cu[i] = int32(i * T)
	}
	return shiftLabels(lab, labels, cu)
}

func near(t testing.TB, what string, got, want, tolerance float64) {
	t.Helper()
	if d := math.Abs(got - want); !(d <= tolerance) {
		t.Errorf("%s = %.9g, want %.9g: off by %.3g, tolerance %.3g", what, got, want, d, tolerance)
	}
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
