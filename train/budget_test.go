package train

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// windowed is the small model as one whose attention sees so many tokens back.
func windowed(t *testing.T, window int) *session.Base {
	t.Helper()
	from, to := golden.StoriesDir(t), t.TempDir()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data := golden.ReadFile(t, from, e.Name())
		if e.Name() == "config.json" {
			text := strings.Replace(string(data), `"model_type": "llama"`,
				fmt.Sprintf(`"model_type": "mistral", "sliding_window": %d`, window), 1)
			data = []byte(strings.Replace(text, "LlamaForCausalLM", "MistralForCausalLM", 1))
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := session.OpenBase(context.Background(), to, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() }) //nolint:errcheck // read only
	return b
}

// unevenRows are rows of the repository's data, from a few tokens to max_length.
func unevenRows(t *testing.T, b *session.Base, n, longest int) dataset.Memory {
	t.Helper()
	c := testSpec(t, 1).Dataset
	c.MaxLength = 512
	set, _, err := dataset.Load(context.Background(), c, b.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	var rows dataset.Memory
	for i := range n {
		row := set.Train.Row(i)
		keep := max(2, longest*(i*i+1)/(n*n)) // the ends, which are trained
		cut := max(0, len(row.IDs)-keep)
		row.IDs, row.Labels = row.IDs[cut:], slices.Clone(row.Labels[cut:])
		row.Labels[0] = dataset.Ignore
		rows = append(rows, row)
	}
	return rows
}

// oneStep is the loss and the gradients of all of a loader's rows as one step.
func oneStep(t *testing.T, b *session.Base, float kernel.DType, l *dataset.Loader) map[string][]float64 {
	t.Helper()
	cfg := peftConfigOf(t, golden.Path(t, "train/init"))
	nw := network(t, b, float, nil, &cfg)
	on := graph.NewCPU(2)
	shape := infer.ShapeOf(l)
	var steps []*step.Step
	var programs []*session.Program
	for _, tokens := range slices.Backward(l.Shape().Budgets) {
		shape.Tokens = tokens
		planned, err := step.Plan(nw, shape, Default().Step(crossEntropy), step.Summing{}, on)
		if err != nil {
			t.Fatal(err)
		}
		steps, programs = append(steps, planned), append(programs, &planned.Program)
	}
	m, err := session.Hold(on, func(m graph.Store) error { return b.Load(context.Background(), steps[0].Net, m, 2) },
		programs...)
	if err != nil {
		t.Fatal(err)
	}
	ts := &testStep{Step: steps[0], memory: m, run: m.Runs[0]}
	params := ts.snapshot(t)
	for _, p := range params { // none zero, so that every tensor has a gradient
		for i := range p.Data {
			p.Data[i] = 0.05 * float32(math.Sin(float64(i*i+len(p.Name))))
		}
	}
	if err := ts.Trained.Restore(m, params); err != nil {
		t.Fatal(err)
	}
	window, trained, err := l.NextWindow(1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(window) != l.Batches(0) {
		t.Fatalf("%d of %d batches", len(window), l.Batches(0))
	}
	ts.set(t, "loss scale", 1/float64(trained))
	run := func(r graph.Runner, segment string) {
		if err := r.Run(segment); err != nil {
			t.Fatal(err)
		}
	}
	run(ts.run, step.SegmentBegin)
	for _, batch := range window {
		copy(ts.ints(t, "input_ids"), batch.IDs)
		copy(ts.ints(t, "positions"), batch.Positions)
		copy(ts.ints(t, "cu_seqlens"), batch.CuSeqlens)
		objective.ShiftLabels(ts.ints(t, "labels"), batch.Labels, batch.CuSeqlens)
		at := slices.IndexFunc(steps, func(s *step.Step) bool { return s.Tokens == len(batch.IDs) })
		run(m.Runs[at], step.SegmentMicro)
	}
	run(ts.run, step.SegmentNorm)
	all := map[string][]float64{"loss": slices.Clone(ts.read(t, ts.Loss)),
		"norm": slices.Clone(ts.read(t, ts.Norm)[:1])}
	for _, p := range ts.Trained.Params {
		x, err := m.Tensor("gradient of " + p.Name)
		if err != nil {
			t.Fatal(err)
		}
		all["gradient of "+p.Name] = slices.Clone(numbers(x))
	}
	return all
}

// TestPackedUnpackedAccumulatedAreOne: loss and gradients of the same rows, one to a padded sequence, end to end,
// packed and accumulated over micro-batches of several budgets; with attention to all tokens and in a window.
func TestPackedUnpackedAccumulatedAreOne(t *testing.T) {
	t.Parallel()
	const n, longest = 12, 104
	for name, b := range map[string]*session.Base{"full": stories(t), "window of 24": windowed(t, 24)} {
		rows := unevenRows(t, b, n, longest)
		for _, v := range []struct {
			float kernel.DType
			near  float64
		}{{kernel.F64, 1e-12}, {kernel.F32, 1e-6}} {
			loader := func(o dataset.Options) *dataset.Loader {
				l, err := dataset.NewLoader(rows, o)
				if err != nil {
					t.Fatal(err)
				}
				l.ChooseBudgets(1000, dataset.MaxBudgets)
				return l
			}
			want := oneStep(t, b, v.float, loader(dataset.Options{BatchSize: n, T: longest, Padded: true}))
			severalBudgets := false
			for how, o := range map[string]dataset.Options{
				"padded, accumulated":      {BatchSize: 1, T: longest, Padded: true},
				"end to end":               {BatchSize: n, T: longest},
				"end to end, accumulated":  {BatchSize: 5, T: longest, Shuffle: true, Seed: 3},
				"rows, accumulated":        {BatchSize: 1, T: longest},
				"packed":                   {BatchSize: 3, T: 200, Packing: true},
				"packed, accumulated":      {BatchSize: 1, T: 120, Packing: true, Shuffle: true},
				"packed as for evaluation": {BatchSize: 1, T: 400, Packing: true, Longest: longest},
			} {
				l := loader(o)
				severalBudgets = severalBudgets || len(l.Shape().Budgets) > 2
				got := oneStep(t, b, v.float, l)
				for _, x := range slices.Sorted(maps.Keys(want)) {
					if d := distance(got[x], want[x]); !(d <= v.near) {
						t.Errorf("%s, %v, %s: %s differs from the padded rows' by %.3g", name, v.float, how, x, d)
					}
				}
			}
			if !severalBudgets {
				t.Error("no loader has several budgets")
			}
		}
	}
}

// unevenSpec is a run whose rows have from 200 to 512 tokens.
func unevenSpec(t testing.TB, steps int, device string) Spec {
	t.Helper()
	s := testSpec(t, steps)
	s.Dataset.MaxLength, s.Dataset.ValSplit, s.Device, s.Training.BatchSize = 512, 0.05, device, 2
	s.Training.EvalSteps = steps
	return s
}

// TestBudgetsTrainAsPaddingDoes: the losses of padded batches to rounding, repeated byte for byte, resumed byte for
// byte, in the memory that the plan says.
func TestBudgetsTrainAsPaddingDoes(t *testing.T) { budgetsTrainAsPaddingDoes(t, "cpu", 1e-6, 1e-4) }

func budgetsTrainAsPaddingDoes(t *testing.T, device string, first, later float64) {
	for _, c := range []struct{ rows, accumulate, steps int }{{2, 1, 20}, {1, 3, 12}} {
		padded := unevenSpec(t, c.steps, device)
		padded.Training.BatchSize, padded.Training.GradientAccumulationSteps, padded.Dataset.PadTo = c.rows,
			c.accumulate, dataset.PadMaxLength
		want := mustStart(t, padded, Env{})
		flat := padded
		flat.Dataset.PadTo, flat.OutputDir = dataset.PadNone, filepath.Join(t.TempDir(), "flat")
		plan, err := PlanRun(context.Background(), flat, Env{})
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Budgets) < 2 || plan.Padding > 0.2 || !strings.Contains(plan.String(),
			"\n  batches of "+fmt.Sprint(plan.Budgets[0])+", ") {
			t.Errorf("the plan has the budgets %v and %.1f %% padding:\n%v", plan.Budgets, 100*plan.Padding, plan)
		}
		got := mustStart(t, flat, Env{})
		if got.HeldBytes != plan.TotalBytes || got.HeldBytes > want.HeldBytes {
			t.Errorf("the run holds %d bytes, the plan says %d, padded it holds %d", got.HeldBytes,
				plan.TotalBytes, want.HeldBytes)
		}
		for i := range want.Losses {
			near := later
			if i == 0 {
				near = first
			}
			golden.Near(t, fmt.Sprintf("relative loss of step %d", i+1), got.Losses[i]/want.Losses[i], 1, near)
		}
		golden.Near(t, "relative evaluation loss", *got.EvalLoss / *want.EvalLoss, 1, later)
		whole := golden.ReadFile(t, flat.OutputDir, adapter.WeightsFile)
		parts := flat
		parts.OutputDir = filepath.Join(t.TempDir(), "parts")
		for _, at := range []int{3, 11} {
			stop := stopping(at)
			mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
			parts.Training.Resume = "auto"
		}
		if r := mustStart(t, parts, Env{}); !slices.Equal(r.Losses, got.Losses) {
			t.Error("the resumed run has other losses")
		}
		if !bytes.Equal(whole, golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
			t.Error("the resumed run trains another adapter")
		}
	}
}

// TestBudgetsTakeTheMemoryOfTheLargest: in every layout, and the layout is the largest budget's.
func TestBudgetsTakeTheMemoryOfTheLargest(t *testing.T) {
	t.Parallel()
	budgetsTakeTheMemoryOfTheLargest(t, func(s Spec) (*prepared, error) { return prepare(t.Context(), s, twoWorkers) })
}

func budgetsTakeTheMemoryOfTheLargest(t *testing.T, prepare func(Spec) (*prepared, error)) {
	planned := func(vram int64, mode string) *prepared {
		s := unevenSpec(t, 200, "cpu")
		s.Training.GradientCheckpointing = mode
		if vram > 0 {
			s.VRAM = fmt.Sprint(vram)
		}
		p, err := prepare(s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() }) //nolint:errcheck // read only
		return p
	}
	most, least := planned(0, "none").found.Need.Total(), planned(0, "full").found.Need.Total()
	for i := range int64(4) {
		p := planned(least+(most-least)*i/3, "auto")
		steps := p.found.Step
		alone, err := graph.Need(steps.train.Plan, steps.eval.Plan)
		if err != nil {
			t.Fatal(err)
		}
		all, err := graph.Need(steps.plans()...)
		if err != nil {
			t.Fatal(err)
		}
		budgets := p.loader.Shape().Budgets
		if len(budgets) < 3 || len(steps.smaller) != len(budgets)-1 || steps.train.Tokens != slices.Max(budgets) {
			t.Errorf("budgets %v, %d smaller steps, the largest for %d tokens", budgets,
				len(steps.smaller), steps.train.Tokens)
		}
		if all.Total() != alone.Total() || all.Total() != p.found.Need.Total() || !maps.Equal(all.State, alone.State) {
			t.Errorf("%v: %v with all budgets, %v with the largest alone, the plan says %v", p.found.Layout,
				all, alone, p.found.Need)
		}
		for _, s := range steps.smaller {
			if s.Plan.Calls()[step.SegmentUpdate] != steps.train.Plan.Calls()[step.SegmentUpdate] {
				t.Errorf("%v: %v calls, the largest has %v", p.found.Layout, s.Plan.Calls(), steps.train.Plan.Calls())
			}
		}
	}
}

// TestRecomputedBudgetsEqualKept: every kind of gradient checkpointing trains the same adapter over several budgets.
func TestRecomputedBudgetsEqualKept(t *testing.T) { recomputedBudgetsEqualKept(t, "cpu") }

func recomputedBudgetsEqualKept(t *testing.T, device string) {
	var first []byte
	for _, mode := range []string{"none", "selective", "full", "offload"} {
		s := unevenSpec(t, 24, device)
		s.Training.GradientCheckpointing, s.LoRA.Dropout, s.Training.BatchSize = mode, 0.1, 1
		plan, err := PlanRun(context.Background(), s, Env{})
		if err != nil || len(plan.Budgets) < 2 {
			t.Fatalf("budgets %v, %v", plan.Budgets, err)
		}
		mustStart(t, s, Env{})
		got := golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
		if first == nil {
			first = got
		}
		if !bytes.Equal(first, got) {
			t.Errorf("%s trains another adapter than none", mode)
		}
	}
}
