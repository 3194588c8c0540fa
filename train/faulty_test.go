package train

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/train/step"
)

// faulty is a CPU that fails as a device may: it answers behind the work as a GPU does, spoils the gradient of chosen
// batches, refuses memory, or does not answer.
type faulty struct {
	*graph.CPU
	async  bool
	spoils map[string]string     // by the hash of a batch's ids: the parameter whose gradient has a NaN
	saw    *[]string             // hashes of the batches that ran
	refuse func(n int) error     // the nth taking of memory; nil = none is refused
	free   func() (int64, int64) // free and total memory; nil = the CPU's
	takes  int
	hangs  func(segment string) // called before a segment runs; nil = never
	waits  atomic.Pointer[graph.Wait]
	ended  atomic.Pointer[error] // what running a segment ends with, if anything
}

func newFaulty() *faulty { return &faulty{CPU: graph.NewCPU(2)} }

func startFaulty(t testing.TB, m *faulty, s Spec, env Env) (Result, error) {
	t.Helper()
	return startAt(context.Background(), s, env, func() (graph.Machine, error) { return m, nil })
}

func (f *faulty) Capabilities() graph.Capabilities {
	c := f.CPU.Capabilities()
	c.Async = f.async
	return c
}

func (f *faulty) FreeMemory() (int64, bool, error) {
	if f.free == nil {
		return f.CPU.FreeMemory()
	}
	free, _ := f.free()
	return free, true, nil
}

func (f *faulty) TotalMemory() (int64, bool) {
	if f.free == nil {
		return 0, false
	}
	_, total := f.free()
	return total, true
}

func (f *faulty) NewStore(plans ...*graph.Plan) (graph.Store, error) {
	if f.takes++; f.refuse != nil {
		if err := f.refuse(f.takes); err != nil {
			return nil, err
		}
	}
	return f.CPU.NewStore(plans...)
}

func (f *faulty) Bind(p *graph.Plan, s graph.Store) (graph.Runner, error) {
	r, err := f.CPU.Bind(p, s)
	return &faultyRunner{r, f, s}, err
}

func (f *faulty) Waiting() (graph.Wait, bool) {
	if w := f.waits.Load(); w != nil {
		return *w, true
	}
	return graph.Wait{}, false
}

type faultyRunner struct {
	graph.Runner
	on    *faulty
	store graph.Store
}

func (r *faultyRunner) Run(segments ...string) error {
	for _, s := range segments {
		if r.on.hangs != nil {
			r.on.hangs(s)
		}
		if err := r.on.ended.Load(); err != nil {
			return *err
		}
		if err := r.Runner.Run(s); err != nil {
			return err
		}
		if s == step.SegmentMicro {
			if err := r.spoil(); err != nil {
				return err
			}
		}
	}
	return nil
}

// spoil looks at the batch that has just run.
func (r *faultyRunner) spoil() error {
	ids, err := r.store.Tensor("input_ids")
	if err != nil {
		return err
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(ids.Bytes()))
	if r.on.saw != nil {
		*r.on.saw = append(*r.on.saw, hash)
	}
	if name := r.on.spoils[hash]; name != "" {
		var x kernel.Tensor
		if x, err = r.store.Tensor(step.GradientName(name)); err == nil {
			x.F32()[1] = float32(math.NaN())
		}
	}
	return err
}

// batchesOf are the hashes of a run's micro-batches, and its adapter.
func batchesOf(t *testing.T, s Spec) (hashes []string, weights []byte) {
	t.Helper()
	m := newFaulty()
	m.saw = &hashes
	if _, err := startFaulty(t, m, s, Env{}); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(hashes), golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
}
