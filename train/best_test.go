package train

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// TestBestCheckpointThatIsGone: a resumed run forgets a best checkpoint whose folder was deleted, says so, and keeps
// the best of its own evaluations. The state never names a folder that is not there.
func TestBestCheckpointThatIsGone(t *testing.T) {
	s := testSpec(t, 8)
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.LearningRate = 0.05, 2, 1e-4
	stop := stopping(5)
	mustStart(t, s, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	stateOf := func() (state checkpoint.State) {
		newest, _, err := checkpoint.Latest(s.OutputDir)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(golden.ReadFile(t, newest, checkpoint.StateFile), &state); err != nil {
			t.Fatal(err)
		}
		return state
	}
	was := stateOf()
	if was.GlobalStep != 5 || was.BestModelCheckpoint != "checkpoint-4" {
		t.Fatalf("at step %d the best one is %q", was.GlobalStep, was.BestModelCheckpoint)
	}
	if err := os.RemoveAll(filepath.Join(s.OutputDir, was.BestModelCheckpoint)); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s.Training.Resume = "auto"
	mustStart(t, s, Env{Env: session.Env{Log: func(line string) { log.WriteString(line + "\n") }}})
	if !strings.Contains(log.String(), "the best checkpoint so far, checkpoint-4 (eval_loss ") ||
		!strings.Contains(log.String(), "it is forgotten") {
		t.Errorf("the log does not say it:\n%s", &log)
	}
	now := stateOf()
	if now.BestModelCheckpoint == "" || now.BestMetric == nil || !exists(s.OutputDir, now.BestModelCheckpoint) {
		t.Errorf("at the end the best one is %q, loss %v", now.BestModelCheckpoint, now.BestMetric)
	}
}
