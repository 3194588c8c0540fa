//go:build gpu

package train

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/session"
)

// childTest runs one test of this binary as a process of its own.
func childTest(t testing.TB, name string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), "TMPDIR="+t.TempDir()), env...) // a killed child leaves its folders
	return cmd
}

// smolLM2Spec is a QLoRA run of a real model on the rows that the repository holds.
func smolLM2Spec(t testing.TB, steps int) Spec {
	t.Helper()
	s := testSpec(t, steps)
	s.BaseModel, s.Device = golden.SmolLM2(t), "cuda"
	s.Training.LearningRate = 2e-4
	s.Training.LoggingSteps = 1
	return s
}

// TestGPUSmolLM2RepeatsAndResumes: the same specification twice, and stopped at step 37 and resumed, gives the
// same adapter byte for byte.
func TestGPUSmolLM2RepeatsAndResumes(t *testing.T) {
	gputest.Need(t)
	whole := smolLM2Spec(t, 50)
	want := mustStart(t, whole, Env{})
	first := golden.ReadFile(t, whole.OutputDir, adapter.WeightsFile)
	again := whole
	again.OutputDir = filepath.Join(t.TempDir(), "again")
	mustStart(t, again, Env{})
	if !bytes.Equal(first, golden.ReadFile(t, again.OutputDir, adapter.WeightsFile)) {
		t.Error("two runs of one specification train different adapters")
	}
	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(37)
	if r := mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop}); !r.Stopped || r.Steps != 37 {
		t.Fatalf("stopped %v after %d steps, want 37", r.Stopped, r.Steps)
	}
	parts.Training.Resume = "auto"
	got := mustStart(t, parts, Env{})
	if got.Resumed != 37 || !slices.Equal(got.Losses, want.Losses) {
		t.Errorf("resumed after %d: losses %v, uninterrupted %v", got.Resumed, got.Losses, want.Losses)
	}
	if !bytes.Equal(first, golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
		t.Error("the resumed run trains another adapter")
	}
	t.Logf("50 steps, loss %.4f to %.4f, adapter of %d bytes: equal twice, equal resumed after 37", want.FirstLoss,
		want.LastLoss, len(first))
}

// TestGPUKilledRunResumes kills a run that saves every third step with SIGKILL, several times, and compares with
// a run that was left alone.
func TestGPUKilledRunResumes(t *testing.T) {
	gputest.Need(t)
	spec := func(dir string) Spec {
		s := testSpec(t, 60)
		if os.Getenv("TRAINER_SMOLLM2") != "" {
			s = smolLM2Spec(t, 60)
		}
		s.Device, s.OutputDir = "cuda", dir
		s.Training.SaveSteps, s.Training.Resume = 3, "auto"
		return s
	}
	if dir := os.Getenv("TRAINER_TEST_RUN"); dir != "" { // the child
		mustStart(t, spec(dir), Env{})
		return
	}
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	mustStart(t, spec(whole), Env{})
	kills := 0
	for try := 0; ; try++ {
		child := childTest(t, "TestGPUKilledRunResumes", "TRAINER_TEST_RUN="+parts)
		var out bytes.Buffer
		child.Stdout, child.Stderr = &out, &out
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if try < 3 {
			waitForCheckpoint(parts, 15*(try+1))
			child.Process.Kill() //nolint:errcheck // it may have ended
		}
		if err := child.Wait(); err == nil {
			break
		} else if kills++; try >= 3 {
			t.Fatalf("a run that nobody killed failed: %v\n%s", err, out.Bytes())
		}
	}
	if kills == 0 {
		t.Fatal("no run was killed")
	}
	t.Logf("killed %d times", kills)
	if !bytes.Equal(golden.ReadFile(t, whole, adapter.WeightsFile), golden.ReadFile(t, parts, adapter.WeightsFile)) {
		t.Error("the killed and resumed run trains another adapter")
	}
}

// watch records the device's free memory and the times of steps from inside a run.
type watch struct {
	Silent
	t     *testing.T
	dev   *gpu.Device
	every int
	free  []int64
	times []float64 // ms
	from  time.Time
}

func (w *watch) Start(RunInfo) error {
	var err error
	if w.dev, err = gpu.Open(0); err != nil { // the run's own context, counted once more
		w.t.Fatal(err)
	}
	return nil
}

func (w *watch) Step(i StepInfo) error {
	if !w.from.IsZero() {
		w.times = append(w.times, float64(time.Since(w.from).Nanoseconds())/1e6)
	}
	if i.Step == 1 || i.Step%w.every == 0 {
		free, _, err := w.dev.Free()
		if err != nil {
			w.t.Error(err)
		}
		w.free = append(w.free, free)
	}
	w.from = time.Now()
	return nil
}

func (w *watch) End(EndInfo) error { return w.dev.Close() }

// TestGPURunIsFlat trains 500 steps: after the first one the device's free memory stays the same to the byte,
// and the last 50 steps take as long as the first 50, to 2 %.
func TestGPURunIsFlat(t *testing.T) {
	gputest.Need(t)
	s := smolLM2Spec(t, 500)
	s.Training.BatchSize, s.Dataset.MaxLength, s.Training.LoggingSteps = 4, 512, 10
	s.Dataset.PadTo = dataset.PadMaxLength // so that all steps are as long
	w := &watch{t: t, every: 10}
	r := mustStart(t, s, Env{Observers: []Observer{w}})
	for i, f := range w.free {
		if f != w.free[0] {
			t.Errorf("step %d: %d bytes free, after step 1 %d", i*w.every, f, w.free[0])
		}
	}
	n := len(w.times)
	first, last := median(w.times[:50]), median(w.times[n-50:])
	t.Logf("%d readings of %d bytes free; median step of the first 50 %.3f ms, of the last 50 %.3f ms (%+.2f %%), "+
		"of all %.3f ms; loss %.4f to %.4f",
		len(w.free), w.free[0], first, last, 100*(last/first-1), median(w.times), r.FirstLoss, r.LastLoss)
	if d := last/first - 1; !(d < 0.02 && d > -0.02) {
		t.Errorf("the last 50 steps take %.3f ms, the first 50 %.3f ms: %+.2f %%", last, first, 100*d)
	}
}

func TestGPUNotFiniteLossStops(t *testing.T) {
	gputest.Need(t)
	notFiniteLossStops(t, "cuda")
}

// TestGPUGivesAllBack: a run's device memory is free again after it.
func TestGPUGivesAllBack(t *testing.T) {
	gputest.Need(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := gpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // for reading only
	run := func() int64 {
		s := testSpec(t, 2)
		s.Device = "cuda"
		mustStart(t, s, Env{})
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := d.Use(); err != nil {
			t.Fatal(err)
		}
		free, _, err := d.Free()
		if err != nil {
			t.Fatal(err)
		}
		return free
	}
	first := run()
	for range 3 {
		if free := run(); free != first {
			t.Errorf("%d bytes free after a run, %d after the first", free, first)
		}
	}
}

// TestGPUEvaluateFollowsCPU compares the mean loss of the quantised base on both: bf16 against float32.
func TestGPUEvaluateFollowsCPU(t *testing.T) {
	gputest.Need(t)
	s := testSpec(t, 1)
	s.Device = "cpu"
	want, err := infer.Evaluate(context.Background(), s.Evaluation(""), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	s.Device = "cuda"
	got, err := infer.Evaluate(context.Background(), s.Evaluation(""), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("evaluation loss %.6f, on the CPU %.6f", got.Loss, want.Loss)
	golden.Near(t, "evaluation loss", got.Loss, want.Loss, 0.02)
}
