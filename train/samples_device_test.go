//go:build gpu

package train

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
)

// TestGPUSamplesChangeNothing: on a device too a run with samples and tasks, longer than its rows, trains the same
// adapter.
func TestGPUSamplesChangeNothing(t *testing.T) {
	gputest.Need(t)
	plain := testSpec(t, 6)
	plain.Device, plain.LoRA.Dropout = "cuda", 0.1
	mustStart(t, plain, Env{})
	with := plain
	with.OutputDir = filepath.Join(t.TempDir(), "with samples")
	with.Training.SamplePrompts, with.Training.SampleMaxTokens,
		with.Training.EvalSteps = []string{"Once upon a time"}, 150, 2
	with.Training.EvalTasks = taskFiles(t)
	seen := &sampled{}
	mustStart(t, with, Env{Observers: []Observer{seen}})
	if len(seen.all) != 4 || seen.all[0].Answer == "" || len(seen.tasks) != 16 {
		t.Errorf("%d samples and %d metrics, want 4 and 16", len(seen.all), len(seen.tasks))
	}
	if !bytes.Equal(golden.ReadFile(t, plain.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, with.OutputDir, adapter.WeightsFile)) {
		t.Error("samples change the adapter")
	}
}
