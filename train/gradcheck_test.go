package train

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/train/gradcheck"
	"github.com/tierlora/tierlora/train/step"
)

// TestGradCheck: float32 on the CPU is within the limits, with weights in 4 bits and as they are, dropout and long
// prompts, and far from nothing: its error is not less than a tenth of what rounding alone makes.
func TestGradCheck(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(s *Spec)
		o      gradcheck.Options
		layers int
	}{
		"qlora": {func(*Spec) {}, gradcheck.Options{Tokens: 128}, 5},
		"lora, dropout": {func(s *Spec) { s.Adapter, s.Quantization, s.LoRA.Dropout = "lora", nil, 0.2 },
			gradcheck.Options{Tokens: 48, Layers: 2}, 2},
		"packed": {func(s *Spec) { s.Dataset.Packing, s.Training.BatchSize = true, 1 },
			gradcheck.Options{Tokens: 64, Layers: 5}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := testSpec(t, 1)
			c.edit(&s)
			r, err := GradCheck(t.Context(), s, Env{}, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if !r.OK || r.Failed > 0 || r.Layers != c.layers || r.Tokens > c.o.Tokens || r.Trained == 0 ||
				r.Trained >= r.Tokens || len(r.Tensors) < 14*c.layers {
				t.Errorf("%+v", r)
			}
			if math.Abs(r.Loss-r.LossExact) > 1e-5*r.LossExact || r.All.Error < r.All.Plain/10 || r.All.Error > 1e-4 {
				t.Errorf("loss %v, exact %v, error %v, plain %v", r.Loss, r.LossExact, r.All.Error, r.All.Plain)
			}
			for _, x := range r.Tensors {
				if x.Norm == 0 {
					t.Errorf("%s has no gradient: nothing is compared", x.Name)
				}
			}
		})
	}
}

// TestGradCheckOfFamilies: the limits hold for every family, mixtures of experts among them.
func TestGradCheckOfFamilies(t *testing.T) {
	t.Parallel()
	for _, m := range golden.FamilyModels(t) {
		r, err := GradCheck(t.Context(), familySpec(t, m), Env{}, gradcheck.Options{Tokens: 48})
		if err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		if !r.OK {
			t.Errorf("%s: %d of %d tensors beyond their limits, all %.3g of %.3g", m.Name, r.Failed, len(r.Tensors),
				r.All.Error, r.All.Limit)
		}
	}
}

// TestGradCheckOfObjectives checks that every objective has gradients to compare, of whole rows where its loss needs
// them.
func TestGradCheckOfObjectives(t *testing.T) {
	t.Parallel()
	all := killedObjectives(t)
	delete(all, "grpo, sampled") // no answers are sampled here
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			r, err := GradCheck(t.Context(), s, Env{}, gradcheck.Options{Tokens: 64, Layers: 2})
			if err != nil {
				t.Fatal(err)
			}
			if !r.OK || r.All.Norm == 0 || math.Abs(r.Loss-r.LossExact) > 1e-4*math.Max(math.Abs(r.LossExact), 1e-2) {
				t.Errorf("loss %v, in float64 %v, gradient %+v", r.Loss, r.LossExact, r.All)
			}
		})
	}
}

// wrongMachine is the CPU with a gradient that is somewhat off.
type wrongMachine struct {
	*graph.CPU
	tensor string
	by     float32
}

func (m wrongMachine) Bind(p *graph.Plan, s graph.Store) (graph.Runner, error) {
	run, err := m.CPU.Bind(p, s)
	if err != nil {
		return nil, err
	}
	x, err := s.Tensor(step.GradientName(m.tensor))
	return wrongRun{run, x, m.by}, err
}

type wrongRun struct {
	graph.Runner
	x  kernel.Tensor
	by float32
}

func (r wrongRun) Run(segments ...string) error {
	err := r.Runner.Run(segments...)
	for i := range r.x.F32() {
		r.x.F32()[i] *= r.by
	}
	return err
}

// TestGradCheckFindsWrongGradients: one that is 0.1 % too large, negated, gone, or no number.
func TestGradCheckFindsWrongGradients(t *testing.T) {
	const tensor = "model.layers.1.mlp.down_proj.lora_A.weight"
	for _, by := range []float32{1.001, -1, 0, float32(math.NaN())} {
		r, err := gradCheckOn(context.Background(), testSpec(t, 1), Env{}, gradcheck.Options{Tokens: 64, Layers: 2},
			wrongMachine{graph.NewCPU(2), tensor, by})
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(r.Tensors, func(x gradcheck.Error) bool { return x.Name == adapter.PEFTName(tensor) })
		if at < 0 || r.OK || r.Failed != 1 || r.Tensors[at].OK() {
			t.Errorf("times %v: ok %v, %d failed: %+v", by, r.OK, r.Failed, r.Tensors[max(at, 0)])
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("times %v: %v", by, err)
		}
	}
}

// bf16Machine is wrongMachine, which is taken for one that computes in bf16.
type bf16Machine struct{ wrongMachine }

func (bf16Machine) Precision() kernel.Precision { return kernel.PrecisionBF16 }

// TestGradCheckDrawsAgain: what is beyond the limit of one plain computation is held to the largest of several, and
// what is wrong stays beyond it.
func TestGradCheckDrawsAgain(t *testing.T) {
	for by, want := range map[float32]struct {
		ok    bool
		draws int
	}{1: {true, 1}, 1.3: {false, 5}} {
		on := bf16Machine{wrongMachine{graph.NewCPU(2), "model.layers.1.mlp.down_proj.lora_A.weight", by}}
		r, err := gradCheckOn(context.Background(), testSpec(t, 1), Env{}, gradcheck.Options{Tokens: 64, Layers: 2}, on)
		if err != nil {
			t.Fatal(err)
		}
		if r.OK != want.ok || r.Draws != want.draws || strings.Contains(r.Rule,
			"the largest of 5") != (want.draws == 5) {
			t.Errorf("times %v: ok %v after %d draws, %s, want %+v", by, r.OK, r.Draws, r.Rule, want)
		}
		t.Logf("times %v: %+v", by, r.All)
	}
}
