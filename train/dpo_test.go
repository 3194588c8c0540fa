package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train/objective"
)

// pairFile writes text pairs of different lengths.
func pairFile(t testing.TB, rows int) string {
	t.Helper()
	var text strings.Builder
	for i := range rows {
		fmt.Fprintf(&text, `{"prompt": "Once upon a time, number %d", "chosen": " there was a %s dog.", "rejected": " it%s was cold."}`+"\n",
			i, strings.Repeat("very ", i%4), strings.Repeat(" really", i%3))
	}
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// dpoSpec is a run of steps on pairs, accumulated, that evaluates.
func dpoSpec(t testing.TB, steps int) Spec {
	t.Helper()
	s := testSpec(t, steps)
	s.Dataset.Path, s.Dataset.Format, s.Dataset.Fields, s.Dataset.ValSplit = pairFile(t, 40), "", nil, 0.2
	c := &s.Training
	c.BatchSize, c.GradientAccumulationSteps, c.LoggingSteps, c.EvalSteps, c.EvalOnStart = 2, 4, 2, 3, true
	c.Objective, c.LearningRate = "dpo", 5e-3
	s.Objectives.DPO = objective.Defaults().DPO
	return s
}

// TestDPORun checks a run on pairs: named numbers in metrics.jsonl, margins that grow, and the same numbers to the last
// bit over ranks and after an interrupt between two lines, padded and packed.
func TestDPORun(t *testing.T) {
	t.Parallel()
	names := []string{"loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins",
		"logps/chosen", "logps/rejected"}
	held := make([]string, len(names))
	for i, name := range names {
		held[i] = "eval_" + name
	}
	for _, packed := range []bool{false, true} {
		whole := dpoSpec(t, 6)
		whole.Dataset.Packing = packed
		mustStart(t, whole, oneWorker)
		steps, evals := linesWith(t, whole.OutputDir, "loss", names...),
			linesWith(t, whole.OutputDir, "eval_loss", held...)
		if len(steps) != 3 || len(evals) != 3 {
			t.Fatalf("%d lines of steps and %d of evaluations, want 3 and 3", len(steps), len(evals))
		}
		if before := evals[0]; math.Abs(before[0]-math.Ln2) > 1e-6 || before[1] != 0 || before[2] != 0 ||
			before[4] != 0 || before[3] != 0 {
			t.Errorf("before training the evaluation has %v, want the loss log 2 and no margin", before)
		}
		if last := evals[2]; !(last[0] < math.Ln2) || !(last[4] > 0.01) || !(last[3] > 0.5) {
			t.Errorf("after training the evaluation has %v, want a smaller loss, a margin and an accuracy", last)
		}
		for _, row := range append(steps, evals...) {
			if math.Abs(row[1]-row[2]-row[4]) > 1e-5 || row[5] >= 0 || row[6] >= 0 {
				t.Errorf("the numbers do not fit: %v", row)
			}
		}

		sameOverRanksAndResume(t, whole, 3)
	}
}

// TestPairsWithoutReference checks runs of the objectives that need no reference: a margin that grows, and the same
// numbers to the last bit over ranks and after an interrupt, padded and packed.
func TestPairsWithoutReference(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cpo", "simpo", "orpo"} {
		for _, packed := range []bool{false, true} {
			s := dpoSpec(t, 6)
			s.Training.Objective, s.Objectives.DPO, s.Dataset.Packing = name, nil, packed
			mustStart(t, s, oneWorker)
			evals := linesWith(t, s.OutputDir, "eval_loss", "eval_loss", "eval_rewards/margins", "eval_logps/chosen")
			if first, last := evals[0], evals[2]; !(last[1] > first[1]) || !(last[0] < first[0]) || !(last[2] < 0) {
				t.Errorf("%s: the evaluations have %v", name, evals)
			}
			sameOverRanksAndResume(t, s, 3)
		}
	}
}

// TestPairsOfLayouts checks that packing, batches of other sizes and recomputed layers compute the same loss and
// numbers: pairs do not see one another. The negative log-likelihood of cpo and orpo is a mean over a micro-batch, so
// other sizes of micro-batches are compared without it, or not at all.
func TestPairsOfLayouts(t *testing.T) {
	t.Parallel()
	batches := map[string]func(*Spec){
		"one micro-batch":  func(s *Spec) { s.Training.BatchSize, s.Training.GradientAccumulationSteps = 8, 1 },
		"pairs one by one": func(s *Spec) { s.Training.BatchSize, s.Training.GradientAccumulationSteps = 1, 8 },
	}
	memory := map[string]func(*Spec){
		"recomputed layers":  func(s *Spec) { s.Training.GradientCheckpointing = "full" },
		"layers on the host": func(s *Spec) { s.Training.GradientCheckpointing = "offload" },
	}
	packed := func(s *Spec) { // all pairs in one packed sequence
		s.Dataset.Packing, s.Training.BatchSize, s.Training.GradientAccumulationSteps = true, 1, 1
		s.Dataset.MaxLength = 512
	}
	for name, c := range map[string]struct {
		set     func(*Spec)
		layouts []map[string]func(*Spec)
	}{
		"dpo": {func(s *Spec) { s.Objectives.DPO.LDAlpha, s.Objectives.DPO.UseWeighting = 0.5, true },
			[]map[string]func(*Spec){batches, memory}},
		"simpo": {func(s *Spec) { s.Training.Objective, s.Objectives.DPO = "simpo", nil },
			[]map[string]func(*Spec){batches}},
		"cpo": {func(s *Spec) {
			s.Training.Objective, s.Objectives.DPO, s.Objectives.CPO = "cpo", nil, objective.Defaults().CPO
			s.Objectives.CPO.CPOAlpha = 0
		}, []map[string]func(*Spec){batches}},
		"orpo": {func(s *Spec) { s.Training.Objective, s.Objectives.DPO = "orpo", nil }, nil},
	} {
		run := func(change func(*Spec)) []float64 {
			s := dpoSpec(t, 2)
			s.Dataset.Path = pairFile(t, 8)
			s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart, s.Training.LoggingSteps = 0, 0, false, 2
			s.Dataset.Shuffle = false
			c.set(&s)
			change(&s)
			mustStart(t, s, oneWorker)
			return linesWith(t, s.OutputDir, "loss", "loss", "rewards/margins", "logps/chosen", "grad_norm")[0]
		}
		same := func(what string, got, want []float64) {
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-4*math.Max(math.Abs(want[i]), 1e-2) {
					t.Errorf("%s, %s: number %d is %v, want %v", name, what, i, got[i], want[i])
				}
			}
		}
		want := run(func(*Spec) {})
		for _, layouts := range c.layouts {
			for what, change := range layouts {
				same(what, run(change), want)
			}
		}
		same("packed", run(packed), run(batches["one micro-batch"]))
	}
}

// TestDPORefuses checks the messages for rows and settings that a run on pairs cannot have.
func TestDPORefuses(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "rows.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for what, c := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"single answers": {func(s *Spec) {
			s.Dataset.Path = file(strings.Repeat(`{"prompt":"a","completion":"b"}`+"\n",
				9))
		},
			"training.objective: dpo: ROWS: it learns from pairs of a chosen and a rejected answer, and 9 of 9 " +
				"rows are none: write dataset.format: preference"},
		"answers with a label": {func(s *Spec) {
			s.Dataset.Path = file(strings.Repeat(`{"prompt":"a","completion":"b","label":true}`+"\n", 9))
		}, "it learns from pairs of a chosen and a rejected answer, and these are single answers with a label"},
		"PiSSA": {func(s *Spec) { s.Adapter, s.Quantization, s.LoRA.InitLoRAWeights = "lora", nil, "pissa" },
			"and lora.init_lora_weights moves a part of the base model into the adapter: leave it unset"},
		"shared tokens": {func(s *Spec) { s.Devices, s.Training.ContextParallelSize = "2", 2 },
			"needs all tokens of an answer, and each rank has a part of them: training.context_parallel_size must " +
				"be 1"},
	} {
		s := dpoSpec(t, 2)
		c.change(&s)
		c.want = strings.Replace(c.want, "ROWS", s.Dataset.Path, 1)
		if _, err := Start(t.Context(), s, oneWorker); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
}
