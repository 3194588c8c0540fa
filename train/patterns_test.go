package train

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/model/weights"
)

// adapterTensors returns the tensors of a run's adapter.
func adapterTensors(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	f, err := weights.Open(filepath.Join(dir, adapter.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string][]byte{}
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		all[name] = bytes.Clone(x.Data)
	}
	return all
}

// TestPatternsOfRates checks that patterns that say what the run says change no byte, that a rate of nearly zero keeps
// the tensors of its pattern alone, and that such a run resumes and shares its steps among ranks.
func TestPatternsOfRates(t *testing.T) {
	t.Parallel()
	plain := testSpec(t, 4)
	plain.Training.LearningRate, plain.Training.WeightDecay, plain.Training.GradientAccumulationSteps = 1e-3, 0.1, 2
	mustStart(t, plain, oneWorker)
	same := plain
	same.OutputDir = filepath.Join(t.TempDir(), "same")
	same.Training.LearningRatePattern = map[string]float64{"layers.0": 1e-3}
	same.Training.WeightDecayPattern = map[string]float64{"lora_A": 0.1}
	mustStart(t, same, oneWorker)
	for name, data := range adapterTensors(t, plain.OutputDir) {
		if !bytes.Equal(data, adapterTensors(t, same.OutputDir)[name]) {
			t.Errorf("%s is another with patterns that say what the run says", name)
		}
	}

	frozen := plain
	frozen.OutputDir = filepath.Join(t.TempDir(), "frozen")
	frozen.Training.LearningRatePattern = map[string]float64{"layers.[0-2]": 1e-30, "layers.3": 2e-3}
	frozen.Training.WeightDecayPattern = map[string]float64{`layers\.4.*lora_B`: 0.5}
	mustStart(t, frozen, oneWorker)
	start := plain
	start.OutputDir, start.Training.LearningRate = filepath.Join(t.TempDir(), "start"), 1e-30
	mustStart(t, start, oneWorker)
	trained, before := adapterTensors(t, frozen.OutputDir), adapterTensors(t, start.OutputDir)
	for name, data := range trained {
		still := strings.Contains(name, "layers.0.") || strings.Contains(name, "layers.1.") ||
			strings.Contains(name, "layers.2.")
		if strings.Contains(name, "lora_A") && bytes.Equal(data, before[name]) != still {
			t.Errorf("%s is unchanged: %v, want %v", name, !still, still)
		}
	}
	ranks := over(t, frozen, 2)
	mustStart(t, ranks, oneWorker)
	sameRun(t, "2 ranks", frozen.OutputDir, ranks.OutputDir)
	parts := frozen
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(2)
	mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	sameRun(t, "resumed", frozen.OutputDir, parts.OutputDir)
	plan, err := os.ReadFile(filepath.Join(frozen.OutputDir, PlanReportFile))
	if err != nil || !strings.Contains(string(plan), "learning rate 0.002 for layers.3: ") ||
		!strings.Contains(string(plan), "weight decay 0.5 for ") {
		t.Errorf("the plan has no line about the groups: %v\n%s", err, plan)
	}
}

// TestPatternsRefuse checks what is said of patterns that are no expression, match nothing or overlap.
func TestPatternsRefuse(t *testing.T) {
	for _, c := range []struct {
		rates, decays map[string]float64
		want          string
	}{
		{rates: map[string]float64{"layers.9": 1e-3}, want: `training.learning_rate_pattern: "layers.9" matches none of `},
		{decays: map[string]float64{"layers.0": 0, "lora_A": 0.1},
			want: `training.weight_decay_pattern: both "layers.0" and "lora_A" match the trained tensor `},
		{rates: map[string]float64{"(": 1}, want: `training.learning_rate_pattern: the pattern "("`},
		{rates: map[string]float64{"": 1}, want: `training.learning_rate_pattern: the pattern "": is empty`},
		{rates: map[string]float64{"lora_A": -1}, want: "training.learning_rate_pattern.lora_A: -1 must be"},
	} {
		s := testSpec(t, 2)
		s.Training.LearningRatePattern, s.Training.WeightDecayPattern = c.rates, c.decays
		problems := s.Training.Validate()
		err := fmt.Errorf("%v", problems)
		if len(problems) == 0 {
			_, err = PlanRun(context.Background(), s, Env{})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %v: %v, want %s", c.rates, c.decays, err, c.want)
		}
	}
}
