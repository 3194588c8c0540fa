package train

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train/checkpoint"
)

// evalsAt notes the steps that are evaluated.
type evalsAt struct {
	Silent
	steps []int
}

func (e *evalsAt) Eval(i EvalMetrics) error {
	e.steps = append(e.steps, i.Step)
	return nil
}

// TestPerEpoch: evaluations and checkpoints are counted by the epoch, evenly apart, whatever their number of steps is.
func TestPerEpoch(t *testing.T) {
	t.Parallel()
	s := testSpec(t, 0)
	s.Dataset.ValSplit = 0.1
	s.Dataset.MaxLength = 96
	s.Training.BatchSize, s.Training.Epochs = 48, 2
	s.Training.EvalsPerEpoch, s.Training.SavesPerEpoch = 1, 2
	s.Training.AllowZeroGradients = true
	seen := &evalsAt{}
	r := mustStart(t, s, Env{Observers: []Observer{seen}})
	steps, err := checkpoint.Steps(s.OutputDir)
	if err != nil {
		t.Fatal(err)
	}
	each := r.MaxSteps / 2
	if want := []int{each, 2 * each}; each < 2 || !slices.Equal(seen.steps, want) {
		t.Errorf("%d steps, evaluated after %v, want %v", r.MaxSteps, seen.steps, want)
	}
	var want []int
	for n := (each + 1) / 2; n < r.MaxSteps; n += (each + 1) / 2 {
		want = append(want, n)
	}
	if want = append(want, r.MaxSteps); !slices.Equal(steps, want) {
		t.Errorf("%d steps, checkpoints at %v, want %v", r.MaxSteps, steps, want)
	}

	s.Dataset.Streaming, s.Training.MaxSteps, s.Dataset.ValSplit, s.Training.EvalsPerEpoch = true, 3, 0, 0
	s.OutputDir = filepath.Join(t.TempDir(), "stream")
	if _, err := Start(t.Context(), s, Env{}); err == nil ||
		!strings.Contains(err.Error(), "training.saves_per_epoch: the rows of dataset.streaming are not counted") {
		t.Errorf("a stream ends with %v", err)
	}
}
