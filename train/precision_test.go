package train

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

// scaledCPU computes as the CPU does, with the loss scaling of fp16 around it.
type scaledCPU struct{ *graph.CPU }

func (scaledCPU) Precision() kernel.Precision { return kernel.PrecisionFP16 }

func startOn(t *testing.T, on graph.Machine, s Spec, env Env) Result {
	t.Helper()
	if err := os.MkdirAll(s.OutputDir, 0o755); err != nil { // Start makes it, and takes its lock, before anything else
		t.Fatal(err)
	}
	p, err := prepareOn(context.Background(), s, env, on)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close() //nolint:errcheck // read only
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
	for line := range strings.Lines(string(golden.ReadFile(t, dir, MetricsFile))) {
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
	t.Parallel()
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
	if string(golden.ReadFile(t, plain.OutputDir, adapter.WeightsFile)) != string(golden.ReadFile(t, scaled.OutputDir,
		adapter.WeightsFile)) {
		t.Error("loss scaling trains another adapter")
	}
	for i, m := range metricsLines(t, scaled.OutputDir) {
		if scale := float64(int(1024) << ((i + 1) / 3)); m.LossScaling == nil || m.Scale != scale || m.Skipped != 0 {
			t.Errorf("step %d: %+v, want a scale of %v", i+1, m.LossScaling, scale)
		}
	}
	if text := string(golden.ReadFile(t, plain.OutputDir, MetricsFile)); strings.Contains(text, "loss_scale") ||
		strings.Contains(text, "skipped_steps") {
		t.Errorf("metrics of a run without loss scaling:\n%s", text)
	}
	parts := scaled
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(4)
	if r := startOn(t, scaledCPU{graph.NewCPU(0)}, parts,
		Env{Observers: []Observer{stop}, Interrupted: stop.stop}); r.Steps != 4 {
		t.Fatalf("stopped after %d steps", r.Steps)
	}
	parts.Training.Resume = "auto"
	startOn(t, scaledCPU{graph.NewCPU(0)}, parts, Env{})
	a, b := metricsLines(t, scaled.OutputDir), metricsLines(t, parts.OutputDir)
	if len(a) != 8 || len(b) != 8 || *a[7].LossScaling != *b[7].LossScaling {
		t.Errorf("the resumed run ends with %+v, the whole one with %+v", b[len(b)-1].LossScaling,
			a[len(a)-1].LossScaling)
	}
}

// TestScalingBeginsInAResumedRun: a checkpoint of a run in fp32 has no scale.
func TestScalingBeginsInAResumedRun(t *testing.T) {
	s := testSpec(t, 6)
	stop := stopping(3)
	mustStart(t, s, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	s.Training.Resume = "auto"
	said := ""
	startOn(t, scaledCPU{graph.NewCPU(0)}, s, Env{Env: session.Env{Log: func(line string) { said += line + "\n" }}})
	if !strings.Contains(said, "without loss scaling: it begins at 65536") {
		t.Errorf("said %q", said)
	}
}

func TestPrecisionThatTheDeviceLacks(t *testing.T) {
	s := testSpec(t, 2)
	s.Training.Precision = "fp16"
	if _, err := Start(context.Background(), s, Env{}); !errors.Is(err, session.ErrNoDevice) {
		t.Errorf("fp16 on the CPU: %v", err)
	}
}

func TestPlanSaysItsPrecision(t *testing.T) {
	s := testSpec(t, 2)
	for precision, want := range map[string]string{"auto": "precision fp32 (auto);", "fp32": "precision fp32;"} {
		s.Training.Precision = precision
		r, err := PlanRun(context.Background(), s, Env{})
		if err != nil || r.Precision != "fp32" || r.PrecisionAuto != (precision == "auto") ||
			!strings.Contains(r.String(), want) {
			t.Errorf("%s: %q %t, %v:\n%v", precision, r.Precision, r.PrecisionAuto, err, r)
		}
	}
}
