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

// weightedSpec is a run over rows with weights; weigh returns row i's, "" for a row without one.
func weightedSpec(t testing.TB, steps int, weigh func(i int) string) Spec {
	t.Helper()
	s := smoothedSpec(t, steps)
	var rows strings.Builder
	for i := range 60 {
		weight := weigh(i)
		if weight != "" {
			weight = `, "weight": ` + weight
		}
		answer := strings.Repeat(fmt.Sprint("word ", i%7, " "), 2+i%5)
		fmt.Fprintf(&rows, `{"prompt": "Row %d: ", "completion": "%s"%s}`+"\n", i, answer, weight)
	}
	s.Dataset.Path = filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(s.Dataset.Path, []byte(rows.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Training.Objective, s.Objectives = objective.Default, objective.Config{}
	s.Dataset.Weights, s.Dataset.Format, s.Dataset.Fields = true, "", nil
	return s
}

// TestWeightedRun: a run over rows with weights is the same to the last bit over two ranks and after an interrupt.
func TestWeightedRun(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cross_entropy", "smoothed_cross_entropy", "dft"} {
		t.Run(name, func(t *testing.T) {
			s := weightedSpec(t, 6, func(i int) string { return []string{"0.25", "", "2", "1"}[i%4] })
			s.Training.Objective = name
			if name == "smoothed_cross_entropy" {
				s.Objectives.SmoothedCrossEntropy = &objective.SmoothedConfig{LabelSmoothing: 0.1}
			}
			mustStart(t, s, oneWorker)
			sameOverRanksAndResume(t, s, 3)
		})
	}
}

// TestWeightsScaleTheLoss: weights of one change nothing but rounding, weights of two double the loss and leave the
// likelihood, rows of weight 0 are as if they were not there, and weights that are not read change no bit.
func TestWeightsScaleTheLoss(t *testing.T) {
	run := func(edit func(s *Spec), weigh func(i int) string) ([]float64, string) {
		s := weightedSpec(t, 1, weigh)
		s.Training.LoggingSteps, s.Training.EvalSteps, s.Training.EvalOnStart, s.Dataset.ValSplit = 1, 0, false, 0
		s.Dataset.Shuffle = false
		edit(&s)
		mustStart(t, s, oneWorker)
		if !s.Dataset.Weights {
			return linesWith(t, s.OutputDir, "loss", "loss", "loss")[0], s.OutputDir
		}
		return linesWith(t, s.OutputDir, "loss", "loss", "nll")[0], s.OutputDir
	}
	as := func(w string) func(int) string { return func(int) string { return w } }
	plain, plainDir := run(func(s *Spec) { s.Dataset.Weights = false }, as(""))
	_, unreadDir := run(func(s *Spec) { s.Dataset.Weights = false }, as("0.5"))
	sameRun(t, "weights that are not read", plainDir, unreadDir)
	one, _ := run(func(*Spec) {}, as("1.0"))
	two, _ := run(func(*Spec) {}, as(`"2"`))
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6*want {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("the loss with weights of one", one[0], plain[0])
	near("the loss with weights of two", two[0], 2*plain[0])
	near("the likelihood with weights of two", two[1], plain[0])
	odd := func(i int) string { return fmt.Sprint(i % 2) }
	half, _ := run(func(*Spec) {}, odd)
	if math.Abs(half[0]-one[0]) < 1e-3*one[0] {
		t.Errorf("rows of weight 0 count: %v", half)
	}
}
