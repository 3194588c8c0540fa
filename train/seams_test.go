package train

import (
	"bytes"
	"encoding/csv"
	"math"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
)

// TestOtherOptimizerLearnsAndResumes: Lion, moments in 8 bits of large tensors and LoRA+ have states of their own, in
// checkpoints too.
func TestOtherOptimizerLearnsAndResumes(t *testing.T) {
	for name, edit := range map[string]func(s *Spec){
		"lion":   func(s *Spec) { s.Training.Optimizer, s.Training.LearningRate = "lion", 2e-4 },
		"lora+":  func(s *Spec) { s.LoRA.LoRAPlusLRRatio = 4 },
		"lion+":  func(s *Spec) { s.Training.Optimizer, s.Training.LearningRate, s.LoRA.LoRAPlusLRRatio = "lion", 1e-4, 4 },
		"8 bits": func(s *Spec) { s.Training.Optimizer, s.LoRA.R = "adamw_8bit", 64 },
		"8 bits, LoRA+": func(s *Spec) {
			s.Training.Optimizer, s.LoRA.R, s.LoRA.LoRAPlusLRRatio = "adamw_8bit", 64, 4
		},
		"with skip": func(s *Spec) { s.Training.OnNonFinite = "skip" },
	} {
		t.Run(name, func(t *testing.T) {
			whole := testSpec(t, 12)
			edit(&whole)
			r := mustStart(t, whole, Env{})
			if r.LastLoss > 0.9*r.FirstLoss {
				t.Errorf("the loss went from %v to %v", r.FirstLoss, r.LastLoss)
			}
			parts := whole
			parts.OutputDir = filepath.Join(t.TempDir(), "run")
			stop := stopping(5)
			mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
			parts.Training.Resume = "auto"
			mustStart(t, parts, Env{})
			if !bytes.Equal(golden.ReadFile(t, whole.OutputDir, adapter.WeightsFile), golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
				t.Error("the resumed run trains another adapter")
			}
		})
	}
}

// TestTensorByTensorIsTogether: the same bytes, whether the tensors are updated one by one or as one vector. The ratio
// is the least above 1, so that the rates differ and a float32 of them does not.
func TestTensorByTensorIsTogether(t *testing.T) {
	for _, optimizer := range []string{"adamw", "adamw_8bit", "lion"} {
		together := testSpec(t, 4)
		// where tensors are large enough for moments in 8 bits.
		together.Training.Optimizer, together.LoRA.R = optimizer, 64
		mustStart(t, together, Env{})
		one := together
		one.OutputDir = filepath.Join(t.TempDir(), "one by one")
		one.LoRA.LoRAPlusLRRatio = math.Nextafter(1, 2)
		p, err := prepare(t.Context(), one, Env{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(p.found.Step.train.Rates); n != 2 {
			t.Errorf("%s: %d rates, want 2: nothing is updated by itself", optimizer, n)
		}
		p.Close() //nolint:errcheck // read only
		mustStart(t, one, Env{})
		if !bytes.Equal(golden.ReadFile(t, together.OutputDir, adapter.WeightsFile), golden.ReadFile(t, one.OutputDir, adapter.WeightsFile)) {
			t.Errorf("%s: one by one trains another adapter", optimizer)
		}
	}
}

// TestCSVHasTheMetrics: a row for every line of metrics.jsonl but the last, through a resume too.
func TestCSVHasTheMetrics(t *testing.T) {
	s := testSpec(t, 8)
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.ReportTo = 0.02, 4, []string{"csv"}
	stop := stopping(5)
	mustStart(t, s, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	s.Training.Resume = "auto"
	mustStart(t, s, Env{})
	rows, err := csv.NewReader(bytes.NewReader(golden.ReadFile(t, s.OutputDir, CSVFile))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	lines := metricsLines(t, s.OutputDir)
	if len(rows) != 1+8+2 || rows[0][7] != "eval_loss" || rows[5][7] == "" || rows[10][7] == "" {
		t.Fatalf("%d rows: %v", len(rows), rows)
	}
	if rows[1][2] != number(lines[0].Loss) || rows[9][3] != number(lines[7].GradNorm) {
		t.Errorf("rows %v and %v, lines %+v and %+v", rows[1], rows[9], lines[0], lines[7])
	}
}
