package train

import (
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
