package train

import (
	"bytes"
	"encoding/csv"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
)

// TestOtherOptimizerLearnsAndResumes: Lion, moments in 8 bits of large tensors and LoRA+ have states of their own, in
// checkpoints too.
func TestOtherOptimizerLearnsAndResumes(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(s *Spec){
		"lion":   func(s *Spec) { s.Training.Optimizer, s.Training.LearningRate = "lion", 2e-4 },
		"lora+":  func(s *Spec) { s.LoRA.LoRAPlusLRRatio = 4 },
		"8 bits": func(s *Spec) { s.Training.Optimizer, s.LoRA.R = "adamw_8bit", 64 },
		"lion, 8 bits": func(s *Spec) {
			s.Training.Optimizer, s.Training.LearningRate, s.LoRA.R = "lion_8bit",
				2e-4, 64
		},
		"sgd":            func(s *Spec) { s.Training.Optimizer, s.Training.LearningRate = "sgd", 0.5 },
		"adafactor":      func(s *Spec) { s.Training.Optimizer = "adafactor" },
		"adafactor beta": func(s *Spec) { s.Training.Optimizer, s.Training.AdafactorBeta1 = "adafactor", 0.9 },
		"muon":           func(s *Spec) { s.Training.Optimizer = "muon" },
		"muon, LoRA+":    func(s *Spec) { s.Training.Optimizer, s.LoRA.LoRAPlusLRRatio = "muon", 4 },
		"muon, DoRA":     func(s *Spec) { s.Training.Optimizer, s.Adapter, s.Quantization = "muon", "dora", nil },
		"schedule-free": func(s *Spec) {
			s.Training.Optimizer, s.Training.LRScheduler = "schedule_free_adamw",
				"constant"
		},
		"schedule-free, LoRA+": func(s *Spec) {
			s.Training.Optimizer, s.Training.LRScheduler, s.LoRA.LoRAPlusLRRatio = "schedule_free_adamw", "constant", 4
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
			if !bytes.Equal(golden.ReadFile(t, whole.OutputDir, adapter.WeightsFile), golden.ReadFile(t,
				parts.OutputDir, adapter.WeightsFile)) {
				t.Error("the resumed run trains another adapter")
			}
		})
	}
}

// TestScheduleFreeSavesTheAverage: evaluations in between change no byte of the adapter, which is the average x and not
// the weights that are trained, and a run that stops after an evaluation resumes with the same bytes.
func TestScheduleFreeSavesTheAverage(t *testing.T) {
	s := testSpec(t, 8)
	s.Training.Optimizer, s.Training.LRScheduler, s.Dataset.ValSplit = "schedule_free_adamw", "constant", 0.02
	mustStart(t, s, Env{})
	want := golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
	often := s
	often.OutputDir, often.Training.EvalSteps, often.Training.EvalOnStart = filepath.Join(t.TempDir(), "often"), 2, true
	often.Training.SaveSteps = 3
	stop := stopping(6)
	mustStart(t, often, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	often.Training.Resume = "auto"
	mustStart(t, often, Env{})
	if !bytes.Equal(want, golden.ReadFile(t, often.OutputDir, adapter.WeightsFile)) {
		t.Error("evaluations, saves and a resume train another adapter")
	}
	states := golden.Open(t, filepath.Join(s.OutputDir, "checkpoint-8", optimizerFile))
	saved := golden.Open(t, filepath.Join(s.OutputDir, adapter.WeightsFile))
	x, z, one := states.Floats("averaged weights"), states.Floats("weights of plain steps"),
		saved.Floats(saved.Names()[0])
	at := slices.Index(x, one[0])
	if at < 0 || !slices.Equal(x[at:at+len(one)], one) || slices.Equal(z[at:at+len(one)], one) {
		t.Error("the adapter is not the average")
	}
}

// TestTensorByTensorIsTogether: the same bytes, whether the tensors are updated one by one or as one vector. The ratio
// is the least above 1, so that the rates differ and a float32 of them does not.
func TestTensorByTensorIsTogether(t *testing.T) {
	t.Parallel()
	for _, optimizer := range []string{"adamw", "adamw_8bit", "lion", "lion_8bit", "sgd", "muon", "adafactor",
		"schedule_free_adamw"} {
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
		if !bytes.Equal(golden.ReadFile(t, together.OutputDir, adapter.WeightsFile), golden.ReadFile(t,
			one.OutputDir, adapter.WeightsFile)) {
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
