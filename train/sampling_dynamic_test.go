package train

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tierlora/tierlora/train/reward"
)

// dynamicSpec is a run of dynamic sampling: a reward for a rare word leaves most groups without a signal.
func dynamicSpec(t testing.TB, steps int) Spec {
	s := samplingSpec(t, steps)
	g := s.Objectives.GRPO
	g.MaxNumGenBatches, g.NumGenerations = 5, 3
	g.Rewards = []reward.Config{{Name: "rare", Type: "regex", Pattern: "big", Workers: 1, Timeout: 1, OnError: "error"}}
	return s
}

// TestDynamicSampling checks that groups without a signal are replaced by groups of further prompts, within the bound,
// that the numbers count them, and that ranks and a resumed run do the same.
func TestDynamicSampling(t *testing.T) {
	plain := dynamicSpec(t, 6)
	plain.Training.LoggingSteps = 1
	plain.Objectives.GRPO.NumIterations = 2
	whole := plain
	own := *plain.Objectives.GRPO
	own.MaxNumGenBatches = 1
	plain.Objectives.GRPO = &own
	plain.OutputDir = filepath.Join(t.TempDir(), "plain")
	mustStart(t, plain, oneWorker)
	mustStart(t, whole, oneWorker)
	const share, sets, replaced, left = "frac_reward_zero_std", "sampling/gen_batches", "sampling/groups_replaced",
		"sampling/groups_without_signal"
	before := linesWith(t, plain.OutputDir, share, share)
	after := linesWith(t, whole.OutputDir, sets, share, sets, replaced, left)
	if len(after) != 3 {
		t.Fatalf("%d of 3 sets of answers have numbers", len(after))
	}
	some := 0.0
	for i, line := range after {
		if line[0]*2 != line[3] || line[1] < 1 || line[1] > 5 || line[3] > 0 && line[1] < 5 {
			t.Errorf("set %d: share %v, sets %v, replaced %v, left %v", i+1, line[0], line[1], line[2], line[3])
		}
		some += line[2]
	}
	if some == 0 || before[0][0] <= after[0][0] {
		t.Errorf("%v groups were replaced; without dynamic sampling %v, with it %v", some, before, after)
	}
	ranks := over(t, whole, 2)
	mustStart(t, ranks, oneWorker)
	sameRun(t, "2 ranks", whole.OutputDir, ranks.OutputDir)
	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(3) // the second step on the second answers follows
	mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	sameRun(t, "resumed", whole.OutputDir, parts.OutputDir)
}

// TestInterruptedDynamicSampling interrupts a run between two sets of prompts of one step: the step's sampling begins
// again when the run resumes, with the same answers, and rollouts.jsonl has each answer once.
func TestInterruptedDynamicSampling(t *testing.T) {
	var interrupt atomic.Pointer[chan struct{}]
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n := calls.Add(1); n == 2 && interrupt.Load() != nil {
			close(*interrupt.Load())
		}
		fmt.Fprint(w, `{"rewards": [0, 0]}`)
	}))
	defer server.Close()
	whole := dynamicSpec(t, 2)
	g := whole.Objectives.GRPO
	g.NumGenerations, g.RecordRollouts = 2, true
	g.Rewards = []reward.Config{{Type: "http", URL: server.URL, Batch: 2, Workers: 1, Timeout: 10, OnError: "error"}}
	whole.Training.GradientAccumulationSteps = 1
	mustStart(t, whole, oneWorker)
	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := make(chan struct{})
	interrupt.Store(&stop)
	calls.Store(0)
	if !mustStart(t, parts, Env{Env: oneWorker.Env, Interrupted: stop}).Stopped {
		t.Error("the run was not interrupted")
	}
	interrupt.Store(nil)
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	sameRun(t, "interrupted", whole.OutputDir, parts.OutputDir)
	want := fileLines(t, filepath.Join(whole.OutputDir, RolloutsFile))
	got := fileLines(t, filepath.Join(parts.OutputDir, RolloutsFile))
	if fmt.Sprint(got) != fmt.Sprint(want) || len(want) != 2*5*2 {
		t.Errorf("%d answers are recorded, without an interrupt %d, want 20", len(got), len(want))
	}
}
