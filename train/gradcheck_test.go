package train

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
)

// TestGradCheck: float32 on the CPU is within the limits, with weights in 4 bits and as they are, dropout and long prompts,
// and far from nothing: its error is not less than a tenth of what rounding alone makes.
func TestGradCheck(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(s *Spec)
		o      GradCheckOptions
		layers int
	}{
		"qlora":         {func(*Spec) {}, GradCheckOptions{Tokens: 128}, 5},
		"lora, dropout": {func(s *Spec) { s.Adapter, s.Quantization, s.LoRA.Dropout = "lora", nil, 0.2 }, GradCheckOptions{Tokens: 48, Layers: 2}, 2},
		"packed":        {func(s *Spec) { s.Dataset.Packing, s.Training.BatchSize = true, 1 }, GradCheckOptions{Tokens: 64, Layers: 5}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := testSpec(t, 1)
			c.edit(&s)
			r, err := GradCheck(t.Context(), s, Env{}, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if !r.OK || r.Failed > 0 || r.Layers != c.layers || r.Tokens > c.o.Tokens || r.Trained == 0 || r.Trained >= r.Tokens || len(r.Tensors) < 14*c.layers {
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
	for _, m := range golden.FamilyModels(t) {
		r, err := GradCheck(t.Context(), familySpec(t, m), Env{}, GradCheckOptions{Tokens: 48})
		if err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		if !r.OK {
			t.Errorf("%s: %d of %d tensors beyond their limits, all %.3g of %.3g", m.Name, r.Failed, len(r.Tensors), r.All.Error, r.All.Limit)
		}
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
	x, err := s.Tensor(gradientOf(m.tensor))
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
		r, err := gradCheckOn(context.Background(), testSpec(t, 1), Env{}, GradCheckOptions{Tokens: 64, Layers: 2}, wrongMachine{graph.NewCPU(2), tensor, by})
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(r.Tensors, func(x GradError) bool { return x.Name == adapter.PEFTName(tensor) })
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

// TestGradCheckDrawsAgain: what is beyond the limit of one plain computation is held to the largest of several, and what is wrong stays
// beyond it.
func TestGradCheckDrawsAgain(t *testing.T) {
	for by, want := range map[float32]struct {
		ok    bool
		draws int
	}{1: {true, 1}, 1.3: {false, 5}} {
		on := bf16Machine{wrongMachine{graph.NewCPU(2), "model.layers.1.mlp.down_proj.lora_A.weight", by}}
		r, err := gradCheckOn(context.Background(), testSpec(t, 1), Env{}, GradCheckOptions{Tokens: 64, Layers: 2}, on)
		if err != nil {
			t.Fatal(err)
		}
		if r.OK != want.ok || r.Draws != want.draws || strings.Contains(r.Rule, "the largest of 5") != (want.draws == 5) {
			t.Errorf("times %v: ok %v after %d draws, %s, want %+v", by, r.OK, r.Draws, r.Rule, want)
		}
		t.Logf("times %v: %+v", by, r.All)
	}
}

// TestCutBatch: what is kept has trained tokens, each sequence an equal share around its first trained token.
func TestCutBatch(t *testing.T) {
	b := dataset.Batch{CuSeqlens: []int32{0, 10, 14, 30, 40}} // the last is padding
	for i := range 40 {
		b.IDs, b.Labels = append(b.IDs, int32(i)), append(b.Labels, dataset.Ignore)
	}
	for _, i := range []int{3, 4, 5, 6, 7, 8, 9, 13, 28, 29} {
		b.Labels[i] = int32(i)
	}
	for tokens, want := range map[int]string{12: "[1 2 3 4][10 11 12 13][26 27 28 29]", 100: "[0 1 2 3 4 5 6 7 8 9][10 11 12 13][14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29]", 3: "[28 29]"} {
		cut := cutBatch(b, tokens)
		got := ""
		for i := range len(cut.CuSeqlens) - 1 {
			got += fmt.Sprint(cut.IDs[cut.CuSeqlens[i]:cut.CuSeqlens[i+1]])
		}
		if tokens != 3 && got != want || len(cut.IDs) > tokens || cut.TrainedTokens == 0 {
			t.Errorf("%d tokens: %s, %d trained, want %s", tokens, got, cut.TrainedTokens, want)
		}
		if slices.Max(cut.Positions) >= 16 || cut.Positions[0] != 0 || len(cut.Labels) != len(cut.IDs) {
			t.Errorf("%d tokens: positions %v, %d labels", tokens, cut.Positions, len(cut.Labels))
		}
	}
}

// TestRoundTo: to the nearest, ties to even, as bf16 is rounded.
func TestRoundTo(t *testing.T) {
	x := kernel.NewTensor(kernel.T(kernel.F32, 2, 4), kernel.Alloc(32))
	in := []float32{1, 1 + 1.0/256, 1 + 3.0/256, -3.14159, 65535, float32(math.Inf(1)), 1e-30, 0}
	copy(x.F32(), in)
	roundTo(x, 8, nil)
	for i, v := range in {
		if want := kernel.FromBF16(kernel.ToBF16(v)); x.F32()[i] != want {
			t.Errorf("%v became %v, want %v", v, x.F32()[i], want)
		}
	}
	random, sum := rand.New(rand.NewPCG(1, 0)), 0.0 // the mean is the number
	for range 4000 {
		x.F32()[0], x.F32()[1] = 1+0.25/128, -3
		roundTo(x, 8, random)
		if v := x.F32()[0]; v != 1 && v != 1+1.0/128 || x.F32()[1] != -3 {
			t.Fatalf("rounded to %v", x.F32()[:2])
		}
		sum += float64(x.F32()[0]) - 1
	}
	if mean := 128 * sum / 4000; !(math.Abs(mean-0.25) <= 0.03) {
		t.Errorf("rounded up %v of the time, want 0.25", mean)
	}
}
