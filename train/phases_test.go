package train

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
)

// TestStopInEveryPhase: a run that is asked to stop ends at once before its steps, with nothing left behind, and saves
// itself from there on; the next start always ends with the adapter of a run that was not stopped.
func TestStopInEveryPhase(t *testing.T) {
	t.Parallel()
	whole := testSpec(t, 4)
	whole.Dataset.ValSplit, whole.Training.EvalSteps, whole.Training.SaveSteps = 0.05, 2, 2
	var all []phase
	env := twoWorkers
	env.phases = func(p phase) {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	mustStart(t, whole, env)
	if want := []phase{phaseOpen, phaseData, phasePlan, phaseLoad, phaseCapture, phaseResume, phaseSteps, phaseEval,
		phaseSave, phaseFinish, phaseEnd}; !slices.Equal(all, want) {
		t.Fatalf("the phases are %q, want %q", all, want)
	}
	for i, at := range all {
		t.Run(string(at), func(t *testing.T) {
			s := whole
			s.OutputDir = filepath.Join(t.TempDir(), "run")
			stop, closed := make(chan struct{}), false
			env := twoWorkers
			env.Interrupted = stop
			env.phases = func(p phase) {
				if p == at && !closed {
					closed = true
					close(stop)
				}
			}
			r, err := Start(context.Background(), s, env)
			early := i < slices.Index(all, phaseSteps)
			done := at == phaseFinish || at == phaseEnd
			var stopped *Stopped
			switch {
			case early:
				if !errors.As(err, &stopped) || stopped.Doing != string(at) || !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
				if _, err := os.Stat(s.OutputDir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the output folder is there: %v", err)
				}
			case err != nil || r.Stopped == done:
				t.Errorf("stopped %v after step %d: %v", r.Stopped, r.Steps, err)
			case !done:
				if _, err := os.Stat(filepath.Join(r.Checkpoint, adapter.WeightsFile)); err != nil {
					t.Error(err)
				}
			}
			if !early && !done {
				s.Training.Resume = "auto"
			}
			if !done {
				mustStart(t, s, twoWorkers)
			}
			if !bytes.Equal(golden.ReadFile(t, whole.OutputDir, adapter.WeightsFile),
				golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)) {
				t.Error("the run trains another adapter than one that was not stopped")
			}
		})
	}
}
