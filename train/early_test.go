package train

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/replay"
)

// worsening is a run whose validation loss rises from an early step on: a large constant rate on few rows.
func worsening(t *testing.T) Spec {
	s := testSpec(t, 40)
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.LRScheduler, s.Training.LearningRate = 0.5, 2, "constant", 0.02
	s.Training.EarlyStoppingPatience, s.Training.LoadBestModelAtEnd = 3, true
	return s
}

func manifestIn(t *testing.T, dir string) (m replay.Manifest) {
	t.Helper()
	if err := json.Unmarshal(golden.ReadFile(t, dir, replay.ManifestFile), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestEarlyStopping: a run ends after three evaluations without a better loss, its result has the weights of the best
// checkpoint, and the manifest says both; interrupted in between and resumed, it ends at the same step with the same
// bytes, and resumed after its end it makes no step more. The replay of its steps finds the adapter of the last one.
func TestEarlyStopping(t *testing.T) {
	t.Parallel()
	s := worsening(t)
	r := mustStart(t, s, Env{})
	if r.Steps >= 40 || r.Stopped || r.ResultStep != r.Steps-6 || !strings.HasPrefix(r.EndedEarly,
		"early stopping: no better eval_loss in 3 evaluations; the best, ") {
		t.Fatalf("%+v", r)
	}
	result := golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
	best := golden.ReadFile(t, s.OutputDir, filepath.Base(checkpointAt(s, r.ResultStep)), adapter.WeightsFile)
	last := golden.ReadFile(t, s.OutputDir, filepath.Base(checkpointAt(s, r.Steps)), adapter.WeightsFile)
	if !bytes.Equal(result, best) || bytes.Equal(result, last) {
		t.Error("the result has not the best checkpoint's weights")
	}
	m := manifestIn(t, s.OutputDir)
	if m.EndedEarly != r.EndedEarly || m.ResultStep != r.ResultStep || m.Steps != r.Steps {
		t.Errorf("the manifest says %q, step %d of %d", m.EndedEarly, m.ResultStep, m.Steps)
	}
	v, err := Verify(t.Context(), s, Env{}, m, m.Steps)
	if err != nil || !v.Equal || v.Adapter == nil || v.Steps != r.Steps {
		t.Errorf("the replay says %+v: %v", v, err)
	}
	parts := s
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(r.Steps - 1)
	mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	for range 2 {
		again := mustStart(t, parts, Env{})
		if again.Steps != r.Steps || again.ResultStep != r.ResultStep || again.EndedEarly != r.EndedEarly {
			t.Errorf("resumed it ends with %+v, want %+v", again, r)
		}
		if !bytes.Equal(result, golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
			t.Error("the resumed run has another result")
		}
	}
	parts.Training.EarlyStoppingPatience = 5
	if again := mustStart(t, parts, Env{}); again.Steps <= r.Steps {
		t.Errorf("with more patience it ends after step %d again", again.Steps)
	}
}

func checkpointAt(s Spec, step int) string {
	return filepath.Join(s.OutputDir, "checkpoint-"+number(float64(step)))
}

// TestEarlyStoppingOverRanks: all ranks end after the same step, with the adapter of one rank.
func TestEarlyStoppingOverRanks(t *testing.T) {
	t.Parallel()
	one := worsening(t)
	one.Training.GradientAccumulationSteps = 2
	want := mustStart(t, one, oneWorker)
	two := over(t, one, 2)
	got := mustStart(t, two, oneWorker)
	if want.EndedEarly == "" || got.Steps != want.Steps || got.EndedEarly != want.EndedEarly {
		t.Errorf("two ranks end with %+v, one with %+v", got, want)
	}
	if !bytes.Equal(golden.ReadFile(t, one.OutputDir, adapter.WeightsFile), golden.ReadFile(t, two.OutputDir,
		adapter.WeightsFile)) {
		t.Error("two ranks have another result")
	}
}

// TestLossWatchdog ends a run after as many steps with a high loss as it has patience, saves it, and counts anew
// after a
// low one.
func TestLossWatchdog(t *testing.T) {
	s := testSpec(t, 6)
	s.Training.LossWatchdogThreshold, s.Training.LossWatchdogPatience = 0.1, 4
	r := mustStart(t, s, Env{})
	if r.Steps != 4 || !strings.HasPrefix(r.EndedEarly,
		"loss watchdog: the loss was above 0.1 in 4 steps in a row, last ") || !exists(s.OutputDir,
		"checkpoint-4") {
		t.Errorf("%+v", r)
	}
	c := &recorder{config: Config{Ends: Ends{LossWatchdogThreshold: 2, LossWatchdogPatience: 2}}}
	c.progress.Losses = []float64{0}
	for i, loss := range []float64{3, 1, 3, 3} {
		c.countLoss(loss)
		if ended := c.endsEarly() != ""; ended != (i == 3) {
			t.Errorf("after loss %d it ends: %v", i, ended)
		}
	}
}

// TestEvaluationsCount for early stopping: by the objective's direction, and by more than the threshold.
func TestEvaluationsCount(t *testing.T) {
	for _, c := range []struct {
		higher    bool
		threshold float64
		values    []float64
		stale     int
	}{
		{false, 0, []float64{3, 2, 1}, 0}, {false, 0, []float64{3, 2, 2, 2.5}, 2}, {true, 0, []float64{3, 2, 1}, 2},
		{true, 0, []float64{1, 2, 3}, 0},
		{false, 0.5, []float64{3, 2.8, 2.6}, 2}, {false, 0.5, []float64{3, 2.8, 2.2}, 0},
	} {
		r := &recorder{config: Config{Ends: Ends{EarlyStoppingPatience: 5, EarlyStoppingThreshold: c.threshold}}}
		for _, v := range c.values {
			r.countEvaluation(v, c.higher)
			r.state.Better(v, c.higher)
		}
		if r.progress.StaleEvals != c.stale {
			t.Errorf("%+v: %d evaluations without a better value", c, r.progress.StaleEvals)
		}
	}
}

// TestEndsNeedEvaluations: keys that judge evaluations are refused in a run that makes none.
func TestEndsNeedEvaluations(t *testing.T) {
	s := testSpec(t, 4)
	s.Training.EarlyStoppingPatience, s.Training.EvalSteps = 2, 0
	want := "training.eval_steps: early_stopping_patience and load_best_model_at_end compare evaluations, and the " +
		"run " +
		"makes one at its end alone: set it, or training.evals_per_epoch"
	if got := s.ValidateNumbers(true); len(got) != 1 || got[0].Error() != want {
		t.Error(got)
	}
	s.Training.EvalSteps = 2
	if got := s.ValidateNumbers(false); len(got) != 1 || !strings.HasSuffix(got[0].Error(),
		"there is nothing to evaluate; set dataset.val_split or dataset.val_path") {
		t.Error(got)
	}
	if got := append(s.ValidateNumbers(true), s.Training.Validate()...); got != nil {
		t.Error(got)
	}
}
