package train

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// TestSamplingOverRanks checks that ranks that sample their shares of the groups train the adapter of one rank, byte
// for byte, also when they are interrupted while they sample and between two steps on the same answers, and resumed.
func TestSamplingOverRanks(t *testing.T) {
	whole := samplingSpec(t, 6)
	whole.Training.GradientAccumulationSteps = 4
	whole.Objectives.GRPO.NumIterations = 2
	mustStart(t, whole, oneWorker)
	for _, world := range []int{2, 4} {
		ranks := over(t, whole, world)
		began := time.Now()
		mustStart(t, ranks, oneWorker)
		took := time.Since(began)
		sameRun(t, fmt.Sprint(world, " ranks"), whole.OutputDir, ranks.OutputDir)
		if got := linesWith(t, ranks.OutputDir, "sampling/wait_seconds", "sampling/wait_seconds"); len(got) == 0 {
			t.Errorf("%d ranks report no time of waiting", world)
		}
		stopped := 0
		for part := range 4 / world {
			parts := ranks
			parts.OutputDir = filepath.Join(t.TempDir(), "parts")
			stop := &stopLater{after: took * time.Duration(part) / 24, stop: make(chan struct{})}
			env := Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop}
			if mustStart(t, parts, env).Stopped {
				stopped++
			}
			parts.Training.Resume = "auto"
			mustStart(t, parts, oneWorker)
			what := fmt.Sprintf("%d ranks, interrupted after %v", world, stop.after)
			sameRun(t, what, whole.OutputDir, parts.OutputDir)
		}
		if stopped == 0 {
			t.Error("no run was interrupted")
		}
		parts := ranks
		parts.OutputDir = filepath.Join(t.TempDir(), "parts")
		stop := stopping(3) // the second step on the second answers follows
		mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
		parts.Training.Resume = "auto"
		mustStart(t, parts, oneWorker)
		sameRun(t, fmt.Sprint(world, " ranks, resumed"), whole.OutputDir, parts.OutputDir)
	}
}
