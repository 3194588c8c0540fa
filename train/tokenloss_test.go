package train

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/train/objective"
)

// TestObjectivesOverRanksAndResume: supervised objectives give the same run to the last bit over two ranks and after an
// interrupt between two lines, and report the same numbers.
func TestObjectivesOverRanksAndResume(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(s *Spec){
		"dft":   func(s *Spec) {},
		"focal": func(s *Spec) { s.Objectives.Focal = &objective.FocalConfig{Gamma: 1} },
	} {
		t.Run(name, func(t *testing.T) {
			whole := smoothedSpec(t, 6)
			whole.Training.Objective, whole.Objectives.SmoothedCrossEntropy = name, nil
			edit(&whole)
			mustStart(t, whole, oneWorker)
			sameOverRanksAndResume(t, whole, "loss", "nll", "ppl")
		})
	}
}

// sameOverRanksAndResume compares a finished run with the same run over two ranks and with one that is interrupted
// after three steps and resumed: files, and keys of the lines of steps and of evaluations.
func sameOverRanksAndResume(t *testing.T, whole Spec, keys ...string) {
	t.Helper()
	var evalKeys []string
	for _, k := range keys {
		evalKeys = append(evalKeys, "eval_"+k)
	}
	steps := linesWith(t, whole.OutputDir, "loss", keys...)
	evals := linesWith(t, whole.OutputDir, "eval_loss", evalKeys...)
	if len(steps) == 0 || len(evals) == 0 {
		t.Fatalf("%d lines of steps, %d of evaluations", len(steps), len(evals))
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
	for what, dir := range map[string]string{"2 ranks": ranks.OutputDir, "resumed": parts.OutputDir} {
		if got := linesWith(t, dir, "loss", keys...); fmt.Sprint(got) != fmt.Sprint(steps) {
			t.Errorf("%s: %v, want %v", what, got, steps)
		}
		if got := linesWith(t, dir, "eval_loss", evalKeys...); fmt.Sprint(got) != fmt.Sprint(evals) {
			t.Errorf("%s: %v, want %v", what, got, evals)
		}
	}
}
