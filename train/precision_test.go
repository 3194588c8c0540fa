package train

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// scaledCPU computes as the CPU does, with the loss scaling of fp16 around it.
type scaledCPU struct{ *graph.CPU }

func (scaledCPU) Precision() kernel.Precision { return kernel.PrecisionFP16 }

func startOn(t *testing.T, on graph.Machine, s Spec, env Env) Result {
	t.Helper()
	p, err := prepareOn(context.Background(), s, env, on)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close() //nolint:errcheck // read only
	r, err := p.train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// metricsLines are the lines of a run's metrics about steps.
func metricsLines(t *testing.T, dir string) []StepMetrics {
	t.Helper()
	var lines []StepMetrics
	for line := range strings.Lines(string(readFile(t, dir, MetricsFile))) {
		if !strings.Contains(line, `"loss"`) {
			continue
		}
		m := StepMetrics{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		lines = append(lines, m)
	}
	return lines
}

// TestLossScalingChangesNothing: where nothing overflows or underflows, powers of two go in and come out again.
func TestLossScalingChangesNothing(t *testing.T) {
	plain := testSpec(t, 8)
	plain.Training.LoggingSteps = 1
	want := mustStart(t, plain, Env{})
	scaled := plain
	scaled.OutputDir = filepath.Join(t.TempDir(), "scaled")
	scaled.Training.LossScale, scaled.Training.LossScaleInterval = 1024, 3
	got := startOn(t, scaledCPU{graph.NewCPU(0)}, scaled, Env{})
	if !slices.Equal(got.Losses, want.Losses) {
		t.Errorf("losses %v, without scaling %v", got.Losses, want.Losses)
	}
	if string(readFile(t, plain.OutputDir, adapter.WeightsFile)) != string(readFile(t, scaled.OutputDir, adapter.WeightsFile)) {
		t.Error("loss scaling trains another adapter")
	}
	for i, m := range metricsLines(t, scaled.OutputDir) {
		if scale := float64(int(1024) << ((i + 1) / 3)); m.LossScaling == nil || m.Scale != scale || m.Skipped != 0 {
			t.Errorf("step %d: %+v, want a scale of %v", i+1, m.LossScaling, scale)
		}
	}
	if text := string(readFile(t, plain.OutputDir, MetricsFile)); strings.Contains(text, "loss_scale") || strings.Contains(text, "skipped_steps") {
		t.Errorf("metrics of a run without loss scaling:\n%s", text)
	}
	parts := scaled
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := &stopAfter{4, make(chan struct{})}
	if r := startOn(t, scaledCPU{graph.NewCPU(0)}, parts, Env{Progress: stop, Interrupted: stop.stop}); r.Steps != 4 {
		t.Fatalf("stopped after %d steps", r.Steps)
	}
	parts.Training.Resume = "auto"
	startOn(t, scaledCPU{graph.NewCPU(0)}, parts, Env{})
	a, b := metricsLines(t, scaled.OutputDir), metricsLines(t, parts.OutputDir)
	if len(a) != 8 || len(b) != 8 || *a[7].LossScaling != *b[7].LossScaling {
		t.Errorf("the resumed run ends with %+v, the whole one with %+v", b[len(b)-1].LossScaling, a[len(a)-1].LossScaling)
	}
}

// TestScalingBeginsInAResumedRun: a checkpoint of a run in fp32 has no scale.
func TestScalingBeginsInAResumedRun(t *testing.T) {
	s := testSpec(t, 6)
	stop := &stopAfter{3, make(chan struct{})}
	mustStart(t, s, Env{Progress: stop, Interrupted: stop.stop})
	s.Training.Resume = "auto"
	said := ""
	startOn(t, scaledCPU{graph.NewCPU(0)}, s, Env{Log: func(line string) { said += line + "\n" }})
	if !strings.Contains(said, "without loss scaling: it begins at 65536") {
		t.Errorf("said %q", said)
	}
}

func TestPrecisionFor(t *testing.T) {
	for _, c := range []struct {
		device, name string
		want         kernel.Precision
		wrong        string
	}{
		{"cpu", "auto", 0, ""}, {"cpu", "", 0, ""}, {"cpu", "fp32", kernel.PrecisionFP32, ""}, {"cuda", "auto", 0, ""},
		{"cpu", "bf16", 0, "training.precision: bf16 needs a GPU (no such device): the CPU computes in fp32; use auto or fp32 there"},
		{"cpu", "fp16", 0, "fp16"}, {"cpu", "tf32", 0, "tf32"}, {"cuda", "fp16", kernel.PrecisionFP16, ""}, {"cuda", "bf16", kernel.PrecisionBF16, ""},
		{"cuda", "tf32", kernel.PrecisionTF32, ""}, {"cuda", "fp32", kernel.PrecisionFP32, ""},
		{"cpu", "half", 0, `"half" is not one of auto, bf16, fp16, tf32, fp32`},
	} {
		p, err := precisionFor(c.device, c.name)
		switch {
		case c.wrong == "" && (err != nil || p != c.want):
			t.Errorf("%s on %s: %v, %v; want %v", c.name, c.device, p, err, c.want)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s on %s: %v, want an error with %q", c.name, c.device, err, c.wrong)
		}
	}
	if n, _ := gpu.Devices(); n == 0 {
		if _, err := precisionFor("auto", "bf16"); !errors.Is(err, ErrNoDevice) {
			t.Errorf("bf16 without a GPU: %v", err)
		}
	}
	s := testSpec(t, 2)
	s.Training.Precision = "fp16"
	if _, err := Start(context.Background(), s, Env{}); !errors.Is(err, ErrNoDevice) {
		t.Errorf("fp16 on the CPU: %v", err)
	}
}

func TestPlanSaysItsPrecision(t *testing.T) {
	s := testSpec(t, 2)
	for precision, want := range map[string]string{"auto": "precision fp32 (auto);", "fp32": "precision fp32;"} {
		s.Training.Precision = precision
		r, err := PlanRun(context.Background(), s, Env{})
		if err != nil || r.Precision != "fp32" || r.PrecisionAuto != (precision == "auto") || !strings.Contains(r.String(), want) {
			t.Errorf("%s: %q %t, %v:\n%v", precision, r.Precision, r.PrecisionAuto, err, r)
		}
	}
}
