package train

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/train/objective"
)

// TestPreferencesAreEvaluated checks that an evaluation of a finished adapter has the loss and the numbers of the run's
// last evaluation to the last bit: pairs and labelled answers, padded and packed, with prompts computed once and with
// every answer, and against each kind of reference.
func TestPreferencesAreEvaluated(t *testing.T) {
	t.Parallel()
	first := dpoSpec(t, 2)
	mustStart(t, first, oneWorker)
	cases := map[string]func(*Spec){
		"dpo":               func(*Spec) {},
		"dpo packed":        func(s *Spec) { s.Dataset.Packing = true },
		"dpo not shared":    func(s *Spec) { s.Training.SharePrompts = "no" },
		"dpo of an adapter": func(s *Spec) { s.Training.Reference = first.OutputDir },
		"dpo of its start": func(s *Spec) {
			s.LoRA.InitFrom, s.Training.Reference = first.OutputDir, "start"
		},
		"simpo": func(s *Spec) { s.Training.Objective, s.Objectives.DPO = "simpo", nil },
		"orpo":  func(s *Spec) { s.Training.Objective, s.Objectives.DPO = "orpo", nil },
		"kto":   func(s *Spec) { *s = ktoSpec(t, 2) },
		"kto packed": func(s *Spec) {
			*s = ktoSpec(t, 2)
			s.Dataset.Packing = true
		},
		"kto without an estimate": func(s *Spec) {
			*s = ktoSpec(t, 2)
			s.Objectives.KTO.LossType = "apo_zero_unpaired"
		},
	}
	for name, change := range cases {
		s := dpoSpec(t, 2)
		change(&s)
		s.Dataset.ValSplit, s.Dataset.Shuffle, s.Training.BatchSize = 0.7, false,
			3 // several batches of validation rows
		mustStart(t, s, oneWorker)
		names := []string{"eval_loss"}
		for _, n := range s.Objective().Numbers() {
			if n.Hidden {
				continue
			}
			names = append(names, "eval_"+n.Name)
		}
		evals := linesWith(t, s.OutputDir, "eval_loss", names...)
		for adapter, want := range map[string][]float64{s.OutputDir: evals[len(evals)-1],
			s.AdapterConfig().InitFrom: evals[0]} {
			r, err := infer.Evaluate(t.Context(), s.Evaluation(adapter), oneWorker.Env)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got := []float64{r.Loss}
			for _, n := range s.Objective().Numbers() {
				if n.Hidden {
					continue
				}
				got = append(got, r.Numbers[n.Name])
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, adapter %q: %v are %v, the run had %v", name, adapter, names, got, want)
			}
			if r.Objective != s.Training.Objective || (r.Reference != "") != objective.Refers(s.Objective()) {
				t.Errorf("%s: the report names the objective %q and the reference %q", name, r.Objective, r.Reference)
			}
		}
	}
}

// TestEvaluationRefuses: what an objective cannot measure is an error that says what to do.
func TestEvaluationRefuses(t *testing.T) {
	pairs, rollouts := dpoSpec(t, 1), rolloutSpecOf(t)
	by := func(o infer.EvalOptions) infer.EvalOptions { o.By = "topic"; return o }
	missing := dpoSpec(t, 1)
	missing.Training.Reference = filepath.Join(t.TempDir(), "none")
	for want, o := range map[string]infer.EvalOptions{
		`evaluate by field "topic": training.objective: dpo has no loss of single rows: leave --by out`: by(pairs.Evaluation("")),
		"evaluate: training.objective: grpo has no loss of validation rows: measure what answers are worth with " +
			"--task, " +
			"or write --set training.objective=cross_entropy for rows with answers": rollouts.Evaluation(""),
		"training.reference: ": missing.Evaluation(""),
	} {
		if _, err := infer.Evaluate(t.Context(), o, oneWorker.Env); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// rolloutSpecOf is a run of grpo on a file of sampled answers.
func rolloutSpecOf(t *testing.T) Spec {
	s := testSpec(t, 1)
	path := filepath.Join(t.TempDir(), "rollouts.jsonl")
	if err := os.WriteFile(path, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Dataset.Path, s.Dataset.Format, s.Dataset.Fields, s.Dataset.ValSplit = path, "rollouts", nil, 0
	s.Training.Objective, s.Objectives.GRPO = "grpo", objective.Defaults().GRPO
	return s
}
