package train

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
)

// evalWatcher notes how far evaluations are and interrupts the run in one of them.
type evalWatcher struct {
	Silent
	seen        []string // "step:batches/of"
	step, batch int      // where it interrupts; 0 = nowhere
	stop        chan struct{}
}

func (w *evalWatcher) Evaluating(step, batches, of int) {
	w.seen = append(w.seen, fmt.Sprintf("%d:%d/%d", step, batches, of))
	if step == w.step && batches == w.batch {
		close(w.stop)
	}
}

// evalLosses is the step and the loss of each evaluation, and where it stands among the lines.
func evalLosses(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	for i, line := range fileLines(t, filepath.Join(dir, MetricsFile)) {
		if head, _, ok := strings.Cut(line, `"eval_runtime"`); ok {
			fmt.Fprintln(&out, i, head)
		}
	}
	return out.String()
}

// TestInterruptedEvaluation: an interrupt ends an evaluation at its next batch, and the resumed run makes up for it.
func TestInterruptedEvaluation(t *testing.T) {
	t.Parallel()
	whole := testSpec(t, 4)
	whole.Dataset.ValSplit, whole.Training.EvalSteps = 0.05, 2
	watcher := &evalWatcher{}
	mustStart(t, whole, Env{Observers: []Observer{watcher}})
	if got := strings.Join(watcher.seen, " "); got != "2:1/4 2:2/4 2:3/4 2:4/4 4:1/4 4:2/4 4:3/4 4:4/4" {
		t.Fatalf("observers saw %s", got)
	}
	for name, step := range map[string]int{"in the middle": 2, "after the last step": 4} {
		t.Run(name, func(t *testing.T) {
			parts := whole
			parts.OutputDir = filepath.Join(t.TempDir(), "run")
			w := &evalWatcher{step: step, batch: 2, stop: make(chan struct{})}
			r := mustStart(t, parts, Env{Observers: []Observer{w}, Interrupted: w.stop})
			if last := w.seen[len(w.seen)-1]; !r.Stopped || r.Steps != step || last != fmt.Sprintf("%d:2/4", step) {
				t.Fatalf("stopped %v after step %d, the last batch was %s", r.Stopped, r.Steps, last)
			}
			if strings.Count(evalLosses(t, parts.OutputDir), "\n") != step/2-1 {
				t.Errorf("half an evaluation was written:\n%s", evalLosses(t, parts.OutputDir))
			}
			parts.Training.Resume = "auto"
			if r := mustStart(t, parts, Env{}); r.Resumed != step || r.Steps != 4 || r.EvalLoss == nil {
				t.Errorf("resumed after %d, ended at %d", r.Resumed, r.Steps)
			}
			if a, b := evalLosses(t, whole.OutputDir), evalLosses(t, parts.OutputDir); a != b ||
				strings.Count(a, "\n") != 2 {
				t.Errorf("evaluations differ:\n%s\n%s", a, b)
			}
			if a, b := logLosses(t, whole.OutputDir), logLosses(t, parts.OutputDir); a != b {
				t.Errorf("metrics differ:\n%s\n%s", a, b)
			}
			if !bytes.Equal(golden.ReadFile(t, whole.OutputDir, adapter.WeightsFile),
				golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
				t.Error("the resumed run trains another adapter")
			}
		})
	}
}
