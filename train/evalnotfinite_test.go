package train

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/train/replay"
)

// TestNotFiniteEvaluation: a run whose loss on the validation rows is no number ends there and says so; so does one
// that resumes from the state that it saved.
func TestNotFiniteEvaluation(t *testing.T) {
	s := testSpec(t, 1) // no later step sees what its update did
	s.Dataset.ValSplit = 0.02
	s.Training.LearningRate, s.Training.LRScheduler, s.Training.MaxGradNorm = 1e30, "constant", 0
	for range 2 {
		r, err := Start(context.Background(), s, Env{})
		want := `^step 1: loss or gradient is not finite: the loss on the validation rows is (NaN|\+Inf)\. ` +
			`The state after the step is in ` + regexp.QuoteMeta(s.OutputDir) + `/checkpoint-1, for a look at it; begin again with a lower training\.learning_rate$`
		if !errors.Is(err, ErrNotFinite) || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Fatalf("got  %v\nwant %s", err, want)
		}
		if r.EvalLoss != nil || exists(s.OutputDir, adapter.WeightsFile) {
			t.Errorf("the run ends with a loss (%v) or an adapter", r.EvalLoss)
		}
		s.Training.Resume = "auto"
	}
}

// TestLastUpdateNotFinite: the update of the last step, whose loss nothing computes, is not written where it made the
// adapter not finite.
func TestLastUpdateNotFinite(t *testing.T) {
	s := testSpec(t, 1)
	s.Training.LearningRate, s.Training.WeightDecay, s.Training.LRScheduler = 3e38, 10, "constant"
	_, err := Start(context.Background(), s, Env{})
	if !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "the adapter itself is not, model.layers.") {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"checkpoint-1", adapter.WeightsFile, replay.ManifestFile} {
		if exists(s.OutputDir, name) {
			t.Errorf("%s was written", name)
		}
	}
}
