package train

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// sharedBatch lays the rows of a batch of pairs out so that both answers of a pair continue its prompt.
func sharedBatch(t *testing.T, b dataset.Batch) dataset.Batch {
	t.Helper()
	groups, segments := b.Sequences()
	var rows dataset.Memory
	for k := range b.Rows {
		var row dataset.Row
		for s := groups[k]; s < groups[k+1]; s++ {
			from, to := b.CuSeqlens[segments[s]], b.CuSeqlens[segments[s]+1]
			if s > groups[k] {
				row.Borders = append(row.Borders, int32(len(row.IDs)))
			}
			row.IDs, row.Labels = append(row.IDs, b.IDs[from:to]...), append(row.Labels, b.Labels[from:to]...)
		}
		rows = append(rows, row)
	}
	set := &dataset.Set{Train: rows, Val: dataset.Memory{}, Config: dataset.Config{MaxLength: 4096}}
	set.SharePrefixes(1)
	l, err := set.TrainLoader(len(rows))
	if err != nil {
		t.Fatal(err)
	}
	for shared, err := range l.Epoch(0) {
		if err != nil || len(shared.Rows) != len(rows) || shared.Prefixes == nil {
			t.Fatalf("%d of %d rows: %v", len(shared.Rows), len(rows), err)
		}
		return shared
	}
	return dataset.Batch{}
}

// TestSharedPromptsEqualTRL compares losses, numbers and gradients with TRL's where both answers of a pair continue one
// prompt, in float32 and in float64.
func TestSharedPromptsEqualTRL(t *testing.T) {
	t.Parallel()
	b := stories(t)
	for _, trainer := range []string{"dpo", "cpo", "orpo"} {
		batch := sharedBatch(t, goldenPairs(t, trainer))
		all := preferenceGoldens(t, trainer)
		tried := 0 // the losses read sums of log-probabilities, whose layout a few of the variants show
		for _, variant := range slices.Sorted(maps.Keys(all)) {
			if want := all[variant]; want.Adapter != "" {
				if tried++; tried%4 == 1 {
					comparePairs(t, b, trainer, variant, want, preferenceObjectives[trainer](t, want.Args), batch)
				}
			}
		}
	}
}

// TestSharedPromptsEqualRepeatedOnes compares losses, numbers and gradients of pairs whose prompt is computed once with
// those of pairs whose prompt is computed twice: odd lengths, prompts of one token and long ones, padding.
func TestSharedPromptsEqualRepeatedOnes(t *testing.T) {
	t.Parallel()
	b := stories(t)
	objectives := map[string]objective.Objective{
		"dpo": objective.Of("dpo", objective.Config{}),
		"dpo with ld_alpha": objective.Of("dpo", objective.Config{DPO: &objective.DPOConfig{
			LossType: []string{"sigmoid", "sft"}, LossWeights: []string{"1", "0.2"}, Beta: 0.1,
			FDivergenceType: "reverse_kl", LDAlpha: 0.5, DiscopopTau: 0.05}}),
		"cpo": objective.Of("cpo", objective.Config{}), "simpo": objective.Of("simpo", objective.Config{}),
		"orpo": objective.Of("orpo", objective.Config{}),
	}
	adapterDir := golden.Path(t, "preferences/"+preferenceGoldens(t, "dpo")["sigmoid"].Adapter)
	apart := map[string][2]float64{} // of each objective's gradients in fp32, the squares of all shapes added up
	for _, shape := range [][][3]int{{{7, 3, 5}}, {{1, 4, 4}, {2, 1, 9}}, {{129, 33, 17}, {64, 1, 1}, {31, 65, 64}}} {
		batch := madePairs(shape)
		shared := sharedBatch(t, batch)
		if len(shared.IDs) >= len(batch.IDs)+8 {
			t.Errorf("%v: %d tokens with shared prompts, %d without", shape, len(shared.IDs), len(batch.IDs))
		}
		for name, o := range objectives {
			t.Run(fmt.Sprintf("%s %v", name, shape), func(t *testing.T) {
				run := func(float kernel.DType, batch dataset.Batch) *preferenceStep {
					s := newStepOfPairs(t, b, float, o, roomFor(batch), Default(), adapterDir)
					s.run.Run(step.SegmentBegin)
					s.micro(t, batch, len(batch.Rows))
					return s
				}
				exact := run(kernel.F64, batch)
				comparePairSteps(t, o, run(kernel.F64, shared), exact, 1e-12)
				got, want := run(kernel.F32, shared), run(kernel.F32, batch)
				comparePairSteps(t, o, got, want, 1e-6)
				ours, theirs := gradientsApart(t, got, exact), gradientsApart(t, want, exact)
				t.Logf("gradients in fp32 are off by %.2g, those of repeated prompts by %.2g", ours, theirs)
				apart[name] = [2]float64{apart[name][0] + ours*ours, apart[name][1] + theirs*theirs}
			})
		}
	}
	// A shape's error is one draw of rounding, another one on another processor: over all shapes they are alike.
	for name, sum := range apart {
		if ours, theirs := math.Sqrt(sum[0]), math.Sqrt(sum[1]); !(ours <= max(1e-6, 1.5*theirs)) {
			t.Errorf("%s: gradients in fp32 are off by %.3g, those of repeated prompts by %.3g", name, ours, theirs)
		}
	}
}

// comparePairSteps compares the loss and the numbers of two steps, and gradients where both compute in float64.
func comparePairSteps(t *testing.T, o objective.Objective, got, want *preferenceStep, bound float64) {
	t.Helper()
	over := objective.Counts{Tokens: 1, Sequences: 2, Groups: 1}
	wanted := want.numbersOf(t, o, over)
	wanted[objective.Loss] = want.read(t, want.Loss)[0]
	numbers := got.numbersOf(t, o, over)
	numbers[objective.Loss] = got.read(t, got.Loss)[0]
	largest := 1. // rewards are differences of log-probabilities, which are the largest numbers
	for _, w := range wanted {
		largest = max(largest, math.Abs(w))
	}
	for name, v := range numbers {
		golden.Near(t, name, v, wanted[name], bound*largest)
	}
	if bound < 1e-9 {
		if d := gradientsApart(t, got, want); !(d <= bound) {
			t.Errorf("gradients are off by %.3g", d)
		}
	}
}

// gradientsApart returns the distance of all gradients of two steps together, relative to those of want.
func gradientsApart(t *testing.T, got, want *preferenceStep) float64 {
	t.Helper()
	var all [2][]float64
	for i, s := range []*preferenceStep{got, want} {
		for _, p := range s.Trained.Params {
			x, err := s.memory.Tensor("gradient of " + p.Name)
			if err != nil {
				t.Fatal(err)
			}
			all[i] = append(all[i], numbers(x)...)
		}
	}
	return distance(all[0], all[1])
}

// madePairs makes pairs of a prompt and two answers of some tokens.
func madePairs(lengths [][3]int) dataset.Batch {
	var rows [][2][2][]int32
	id := int32(3)
	next := func(n int) (all []int32) {
		for range n {
			id = (id*31+7)%500 + 3
			all = append(all, id)
		}
		return all
	}
	for _, l := range lengths {
		prompt := next(l[0])
		var pair [2][2][]int32
		for side := range pair {
			answer := next(l[1+side])
			ids := append(slices.Clone(prompt), answer...)
			labels := append(slices.Repeat([]int32{dataset.Ignore}, len(prompt)), answer...)
			pair[side] = [2][]int32{ids, labels}
		}
		rows = append(rows, pair)
	}
	return pairBatch(rows)
}

// longPrompts replaces the prompts of a run on pairs by longer ones.
func longPrompts(t *testing.T, s *Spec) {
	t.Helper()
	text := strings.ReplaceAll(string(golden.ReadFile(t, filepath.Dir(s.Dataset.Path), filepath.Base(s.Dataset.Path))),
		"Once upon a time", "Once upon a time there was a girl who lived in a big house with her mom, her dad and")
	s.Dataset.Path = filepath.Join(t.TempDir(), "long.jsonl")
	if err := os.WriteFile(s.Dataset.Path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRunWithSharedPrompts checks whole runs: auto shares long prompts, numbers equal those of a run that does not, 2
// ranks, a resumed run and one that reads recorded windows give the same bits, padded and packed.
func TestRunWithSharedPrompts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dpo", "orpo"} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s packed %v", name, packed), func(t *testing.T) { sharedRun(t, name, packed) })
		}
	}
}

func sharedRun(t *testing.T, name string, packed bool) {
	whole := dpoSpec(t, 6)
	whole.Dataset.Packing, whole.Training.Objective = packed, name
	if name != "dpo" {
		whole.Objectives.DPO = nil
	}
	longPrompts(t, &whole)
	plan, err := PlanRun(t.Context(), whole, oneWorker)
	if err != nil || !strings.Contains(fmt.Sprint(plan.Notes), "prompts are computed once") {
		t.Fatalf("the plan notes %q: %v", plan.Notes, err)
	}
	mustStart(t, whole, oneWorker)

	apart := whole
	apart.Training.SharePrompts, apart.OutputDir = "no", filepath.Join(t.TempDir(), "apart")
	other, err := PlanRun(t.Context(), apart, oneWorker)
	if err != nil || !packed && (plan.TotalBytes >= other.TotalBytes ||
		slices.Max(plan.Budgets) >= slices.Max(other.Budgets)) {
		t.Errorf("the plan has %d bytes and budgets %v, without sharing %d and %v: %v", plan.TotalBytes, plan.Budgets,
			other.TotalBytes, other.Budgets, err)
	}
	if !packed { // packed rows come in an order of their own
		mustStart(t, apart, oneWorker)
		names := []string{"loss", "rewards/margins", "logps/chosen", "logps/rejected", "grad_norm"}
		got, want := linesWith(t, whole.OutputDir, "loss", names...), linesWith(t, apart.OutputDir, "loss", names...)
		for i := range want {
			for k, w := range want[i] {
				bound := 2e-5
				if i > 0 { // Adam makes more of the rounding of earlier steps
					bound = 2e-3
				}
				golden.Near(t, fmt.Sprint(names[k], " of line ", i), got[i][k], w, bound*math.Max(1, math.Abs(w)))
			}
		}
	}

	ranks := over(t, whole, 2)
	mustStart(t, ranks, oneWorker)
	sameRun(t, "2 ranks", whole.OutputDir, ranks.OutputDir)

	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(3)
	mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	sameRun(t, "resumed", whole.OutputDir, parts.OutputDir)
	parts.Training.SharePrompts, parts.Training.MaxSteps = "no", 8
	_, err = Start(t.Context(), parts, oneWorker)
	if err == nil || !strings.Contains(err.Error(), "training.share_prompts was yes, now it is no") {
		t.Errorf("resumed without sharing: %v", err)
	}
}

// TestUnsharedRunsStayUnshared checks that a run which began without shared prompts resumes without them, whatever auto
// would choose.
func TestUnsharedRunsStayUnshared(t *testing.T) {
	s := dpoSpec(t, 4)
	longPrompts(t, &s)
	s.Training.SharePrompts, s.Training.SaveSteps = "no", 2
	mustStart(t, s, oneWorker)
	s.Training.SharePrompts, s.Training.MaxSteps, s.Training.Resume = "auto", 6, "auto"
	mustStart(t, s, oneWorker)
}

// TestWhatSharesNoPrompts lists runs that cannot share prompts: auto notes why, and yes is refused.
func TestWhatSharesNoPrompts(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"noise":     {func(s *Spec) { s.Training.NEFTuneAlpha = 5 }, "training.neftune_alpha"},
		"a stream":  {func(s *Spec) { s.Dataset.Streaming, s.Dataset.ValSplit = true, 0 }, "dataset.streaming"},
		"objective": {func(s *Spec) { *s = testSpec(t, 2) }, "cross_entropy learns from single sequences"},
	} {
		s := dpoSpec(t, 2)
		longPrompts(t, &s)
		s.Training.EvalSteps, s.Training.EvalOnStart = 0, false
		c.change(&s)
		plan, err := PlanRun(t.Context(), s, oneWorker)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		noted := strings.Contains(fmt.Sprint(plan.Notes), c.want)
		if strings.Contains(fmt.Sprint(plan.Notes), "computed once") || what == "noise" && !noted {
			t.Errorf("%s: the plan notes %q", what, plan.Notes)
		}
		s.Training.SharePrompts = "yes"
		if _, err := PlanRun(t.Context(), s, oneWorker); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: yes is answered %v", what, err)
		}
	}
}
