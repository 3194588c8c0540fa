package train

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/train/objective"
)

// TestObjectivesOverRanksAndResume: supervised objectives give the same run to the last bit over two and four ranks and
// after an interrupt between two lines, and report the same numbers.
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
			sameOverRanksAndResume(t, whole, 3)
		})
	}
}

// TestLossesOfLayouts checks that one step of losses of tokens and of rewards is the same from one micro-batch, from
// rows one by one, from padded rows and from packed ones.
func TestLossesOfLayouts(t *testing.T) {
	t.Parallel()
	all := map[string]Spec{"reward": headSpec(t, 1, "sequence_classification", "reward", rewardRow)}
	for _, name := range []string{"cross_entropy", "smoothed_cross_entropy", "dft", "focal"} {
		s := weightedSpec(t, 1, func(int) string { return "" })
		s.Training.Objective, s.Dataset.Weights = name, false
		all[name] = s
	}
	for name, base := range all {
		t.Run(name, func(t *testing.T) {
			base.Dataset.ValSplit, base.Dataset.Shuffle, base.Dataset.Packing = 0, false, false
			c := &base.Training
			c.EvalSteps, c.EvalOnStart, c.LoggingSteps, c.BatchSize, c.GradientAccumulationSteps = 0, false, 1, 8, 1
			base.Dataset.Path = fewRows(t, base.Dataset.Path, 8)
			run := func(change func(*Spec)) []float64 {
				s := base
				s.OutputDir = filepath.Join(t.TempDir(), "run")
				change(&s)
				mustStart(t, s, oneWorker)
				return linesWith(t, s.OutputDir, "loss", "loss", "grad_norm")[0]
			}
			want := run(func(*Spec) {})
			for what, change := range map[string]func(*Spec){
				"one by one": func(s *Spec) { s.Training.BatchSize, s.Training.GradientAccumulationSteps = 1, 8 },
				"padded":     func(s *Spec) { s.Dataset.PadTo = "max_length" },
				"packed": func(s *Spec) {
					s.Dataset.Packing, s.Dataset.MaxLength, s.Training.BatchSize = true, 512, 1
				},
			} {
				got := run(change)
				for i, w := range want {
					if math.Abs(got[i]-w) > 1e-4*w {
						t.Errorf("%s: loss and norm of the gradient are %v, want %v", what, got, want)
						break
					}
				}
			}
		})
	}
}
