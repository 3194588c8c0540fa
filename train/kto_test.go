package train

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/objective"
)

// answerFile writes labelled answers of different lengths, a third of them undesirable.
func answerFile(t testing.TB, rows int) string {
	t.Helper()
	var text strings.Builder
	for i := range rows {
		answer, label := " there was a "+strings.Repeat("very ", i%4)+"happy dog.", true
		if i%3 == 1 {
			answer, label = " it"+strings.Repeat(" really", i%5)+" was cold.", false
		}
		const row = `{"prompt": "Once upon a time, number %d", "completion": %q, "label": %v}` + "\n"
		fmt.Fprintf(&text, row, i, answer, label)
	}
	path := filepath.Join(t.TempDir(), "answers.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// ktoSpec is a run of steps on labelled answers, accumulated, that evaluates.
func ktoSpec(t testing.TB, steps int) Spec {
	t.Helper()
	s := dpoSpec(t, steps)
	s.Dataset.Path, s.Dataset.MaxLength = answerFile(t, 60), 32
	s.Training.Objective, s.Training.BatchSize, s.Objectives.DPO = "kto", 4, nil
	s.Objectives.KTO = objective.Defaults().KTO
	s.Objectives.KTO.DesirableWeight = 0.75
	return s
}

// ktoNumbers are the numbers of a line of metrics.jsonl.
var ktoNumbers = []string{"loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen",
	"logps/rejected", "kl", "share/chosen", "share/rejected", "grad_norm"}

// TestKTORun checks a run on labelled answers: named numbers in metrics.jsonl, a margin that grows, and the same
// numbers to the last bit over ranks and after an interrupt between two lines, padded and packed.
func TestKTORun(t *testing.T) {
	t.Parallel()
	held := []string{"eval_loss", "eval_rewards/margins", "eval_kl", "eval_share/chosen"}
	for _, packed := range []bool{false, true} {
		whole := ktoSpec(t, 6)
		whole.Dataset.Packing = packed
		mustStart(t, whole, oneWorker)
		steps := linesWith(t, whole.OutputDir, "loss", ktoNumbers...)
		evals := linesWith(t, whole.OutputDir, "eval_loss", held...)
		if len(steps) != 3 || len(evals) != 3 {
			t.Fatalf("%d lines of steps and %d of evaluations, want 3 and 3", len(steps), len(evals))
		}
		if before := evals[0]; math.Abs(before[0]-(0.75*before[3]+1-before[3])/2) > 1e-6 || before[2] != 0 {
			t.Errorf("before training the evaluation has %v, want half of the weights and no divergence", before)
		}
		if first, last := evals[0], evals[2]; !(last[0] < first[0]) || !(last[1] > 0.01) {
			t.Errorf("after training the evaluation has %v, want a smaller loss and a margin", last)
		}
		for _, row := range steps {
			if math.Abs(row[1]-row[2]-row[3]) > 1e-5 || math.Abs(row[7]+row[8]-1) > 1e-6 || row[6] < 0 {
				t.Errorf("the numbers do not fit: %v", row)
			}
		}

		sameOverRanksAndResume(t, whole, 3)
	}
}

// TestKTOOfLayouts checks that layouts of the same micro-batches compute the same loss and numbers, and that a loss
// without an estimate of the divergence does so for micro-batches of other sizes too.
func TestKTOOfLayouts(t *testing.T) {
	t.Parallel()
	run := func(loss string, change func(*Spec)) []float64 {
		s := ktoSpec(t, 3)
		s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart, s.Training.LoggingSteps = 0, 0, false, 3
		s.Dataset.Shuffle, s.Objectives.KTO.LossType, s.Objectives.KTO.KLRows = false, loss, 4
		if loss == "kto" { // an epoch is one micro-batch, whose rows fit into one packed sequence
			s.Dataset.Path, s.Dataset.MaxLength, s.Training.GradientAccumulationSteps = answerFile(t, 4), 256, 1
		}
		change(&s)
		mustStart(t, s, oneWorker)
		return linesWith(t, s.OutputDir, "loss", ktoNumbers...)[0]
	}
	layouts := map[string]map[string]func(*Spec){
		"kto": {
			"padded":         func(s *Spec) { s.Dataset.PadTo = "max_length" },
			"shared prompts": func(s *Spec) { s.Training.SharePrompts = "yes" },
			"packed": func(s *Spec) {
				s.Dataset.Packing, s.Training.BatchSize = true, 1
			},
			"recomputed layers": func(s *Spec) { s.Training.GradientCheckpointing = "full" },
		},
		"apo_zero_unpaired": {
			"one micro-batch":    func(s *Spec) { s.Training.BatchSize, s.Training.GradientAccumulationSteps = 16, 1 },
			"answers one by one": func(s *Spec) { s.Training.BatchSize, s.Training.GradientAccumulationSteps = 1, 16 },
			"layers on the host": func(s *Spec) { s.Training.GradientCheckpointing = "offload" },
		},
	}
	for loss, changes := range layouts {
		want := run(loss, func(*Spec) {})
		if estimates := loss == "kto"; estimates != (want[6] > 0) {
			t.Errorf("%s: the estimate is %v", loss, want[6])
		}
		for what, change := range changes {
			got := run(loss, change)
			for i, name := range ktoNumbers {
				if math.Abs(got[i]-want[i]) > 1e-4*math.Max(math.Abs(want[i]), 1e-2) {
					t.Errorf("%s, %s: %s is %v, want %v", loss, what, name, got[i], want[i])
				}
			}
		}
	}
}

// TestKTOOfPairs trains on pairs, of which each is two labelled answers.
func TestKTOOfPairs(t *testing.T) {
	s := ktoSpec(t, 4)
	s.Dataset.Path = pairFile(t, 40)
	mustStart(t, s, oneWorker)
	evals := linesWith(t, s.OutputDir, "eval_loss", "eval_loss", "eval_rewards/margins", "eval_share/chosen")
	if last := evals[len(evals)-1]; !(last[0] < evals[0][0]) || !(last[1] > 0) || last[2] != 0.5 {
		t.Errorf("the evaluations have %v", evals)
	}
}

// TestKTORefuses checks the messages for rows and settings that a run on labelled answers cannot have.
func TestKTORefuses(t *testing.T) {
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
			s.Dataset.Path = file(strings.Repeat(`{"prompt":"a","completion":"b"}`+"\n", 9))
		}, "training.objective: kto: ROWS: it learns from answers that are each labelled desirable or undesirable, " +
			"and 9 of 9 rows have no label"},
		"another label": {func(s *Spec) {
			s.Dataset.Path = file(strings.Repeat(`{"prompt":"a","completion":"b","label":"good"}`+"\n", 9))
		}, `field "label" is "good", want true for an answer to learn or false for one to avoid`},
		"a stream": {func(s *Spec) { s.Dataset.Streaming, s.Dataset.ValSplit = true, 0 },
			"dataset.streaming: an estimate of the divergence needs the answers of other rows"},
		"shared tokens": {func(s *Spec) { s.Devices, s.Training.ContextParallelSize = "2", 2 },
			"needs all tokens of an answer, and each rank has a part of them: training.context_parallel_size must be " +
				"1"},
	} {
		s := ktoSpec(t, 2)
		c.change(&s)
		c.want = strings.Replace(c.want, "ROWS", s.Dataset.Path, 1)
		if _, err := Start(t.Context(), s, oneWorker); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
	for what, c := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"one row": {func(s *Spec) { s.Training.BatchSize = 1 },
			"kto.kl_rows: the estimate of the divergence takes the answers of other rows, and 1 row has none"},
		"shrink": {func(s *Spec) { s.Training.OnOOM = "shrink" },
			"training.on_oom: shrink makes smaller micro-batches"},
	} {
		s := ktoSpec(t, 2)
		c.change(&s)
		if problems := fmt.Sprint(s.ValidateBatches()); !strings.Contains(problems, c.want) {
			t.Errorf("%s: %v, want %s", what, problems, c.want)
		}
		s.Objectives.KTO.LossType = "apo_zero_unpaired"
		if problems := s.ValidateBatches(); problems != nil {
			t.Errorf("%s without an estimate: %v", what, problems)
		}
	}
}

// TestKTOTables checks that metrics.csv has a column for each number of the objective, with an empty field where a step
// has no answer of a label.
func TestKTOTables(t *testing.T) {
	s := ktoSpec(t, 5)
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart, s.Training.LoggingSteps = 0, 0, false, 1
	s.Training.BatchSize, s.Training.GradientAccumulationSteps, s.Objectives.KTO.KLRows = 1, 1, 4
	s.Training.ReportTo = []string{"csv"}
	mustStart(t, s, oneWorker)
	rows, err := csv.NewReader(strings.NewReader(string(golden.ReadFile(t, s.OutputDir, CSVFile)))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	labels := map[string]bool{}
	for _, row := range rows[1:] {
		field := func(name string) string { return row[column[name]] }
		desirable := field("share/chosen") == "1"
		labels[field("share/chosen")] = true
		if (field("rewards/chosen") != "") != desirable || (field("logps/rejected") != "") == desirable ||
			field("rewards/margins") != "" || field("kl") == "" {
			t.Errorf("the row of a step has %v", row)
		}
	}
	if len(rows) != 6 || len(labels) != 2 {
		t.Errorf("%d rows with the labels %v", len(rows), labels)
	}
}
