//go:build gpu

package train

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

// TestGPUCurveFollowsCPU trains 20 steps of QLoRA on both and compares the losses: bf16 against float32.
func TestGPUCurveFollowsCPU(t *testing.T) {
	gputest.Need(t)
	spec := testSpec(t, 20)
	spec.Device = "cpu"
	want := mustStart(t, spec, Env{})
	spec.Device, spec.OutputDir = "cuda", filepath.Join(t.TempDir(), "gpu")
	got := mustStart(t, spec, Env{})
	sum, worst := 0.0, 0.0
	for i := range want.Losses {
		d := math.Abs(got.Losses[i] - want.Losses[i])
		sum, worst = sum+d, math.Max(worst, d)
	}
	t.Logf("mean difference %.4g, largest %.4g; losses %.4f to %.4f", sum/float64(len(want.Losses)), worst,
		got.Losses[0], got.Losses[19])
	if !(sum/float64(len(want.Losses)) < 0.02) {
		t.Errorf("losses differ by %.4g in the mean: GPU %v, CPU %v", sum/float64(len(want.Losses)),
			got.Losses, want.Losses)
	}
}

func TestGPURunRepeatsAndResumes(t *testing.T) {
	gputest.Need(t)
	a := testSpec(t, 12)
	a.Device = "cuda"
	mustStart(t, a, Env{})
	b := a
	b.OutputDir = filepath.Join(t.TempDir(), "again")
	mustStart(t, b, Env{})
	first := golden.ReadFile(t, a.OutputDir, adapter.WeightsFile)
	if !bytes.Equal(first, golden.ReadFile(t, b.OutputDir, adapter.WeightsFile)) {
		t.Error("two runs of one spec train different adapters")
	}
	c := a
	c.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(5)
	mustStart(t, c, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	c.Training.Resume = "auto"
	mustStart(t, c, Env{})
	if !bytes.Equal(first, golden.ReadFile(t, c.OutputDir, adapter.WeightsFile)) {
		t.Error("the resumed run trains another adapter")
	}
}

// TestGPURecomputedRunEqualsKept: so many rows that a layer's input and its tail both wait in host memory.
func TestGPURecomputedRunEqualsKept(t *testing.T) {
	gputest.Need(t)
	recomputedRunEqualsKept(t, "cuda", 16)
}

// TestGPUHoldsItsPlan compares the plan's bytes with what the run allocates.
func TestGPUHoldsItsPlan(t *testing.T) {
	gputest.Need(t)
	s := testSpec(t, 2)
	s.Device = "cuda"
	s.Dataset.ValSplit = 0.05
	plan, err := PlanRun(context.Background(), s, Env{})
	if err != nil {
		t.Fatal(err)
	}
	if r := mustStart(t, s, Env{}); r.HeldBytes != plan.TotalBytes {
		t.Errorf("the run holds %d bytes, the plan says %d", r.HeldBytes, plan.TotalBytes)
	}
}

// TestGPUSmolLM2Curve follows PEFT's float32 QLoRA curve in bf16 for 100 steps.
func TestGPUSmolLM2Curve(t *testing.T) {
	gputest.Need(t)
	dir := golden.SmolLM2(t)
	b, err := session.OpenBase(context.Background(), dir, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	on, err := graph.NewGPU(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	mean, end := smolLM2Curve(t, b, on, "qlora_nf4_double", 100)
	t.Logf("100 steps: mean absolute difference %.4g, mean of the last ten %.4g", mean, end)
	if !(mean < 0.01) || !(end < 0.02) {
		t.Errorf("mean absolute difference %.4g, want below 0.01; at the end %.4g, want below 0.02", mean, end)
	}
}

// smolLM2Curve trains steps as PEFT did and returns the mean absolute difference of the losses, over all
// steps and over the last ten.
func smolLM2Curve(t *testing.T, b *session.Base, on graph.Machine, name string, steps int) (mean, end float64) {
	t.Helper()
	batches := golden.Open(t, golden.Outside(t, "goldens/smollm2/batches.safetensors"))
	ids, labels, T := batches.Ints("input_ids"), batches.Ints("labels"), batches.Shape("input_ids")[1]
	var want struct {
		Loss []float64 `json:"loss"`
		LR   []float64 `json:"lr"`
	}
	golden.JSON(t, golden.Outside(t, "goldens/smollm2/"+name+".json"), &want)
	init := golden.Outside(t, "goldens/smollm2/init")
	cfg := peftConfigOf(t, init)
	ts := newTestStepOn(t, on, b, network(t, b, kernel.F32, schemeOf(name), &cfg),
		session.Shape{Tokens: T, Sequences: 1, MaxLen: T}, Default(), init)
	for step := range steps {
		trained := ts.fill(t, ids[step*T:(step+1)*T], labels[step*T:(step+1)*T], T)
		ts.set(t, "loss scale", 1/float64(trained))
		h := adamNumbers(Default(), want.LR[step], step+1)
		ts.set(t, "optimizer", h[:]...)
		ts.step(t)
		d := math.Abs(ts.read(t, ts.Loss)[0] - want.Loss[step])
		mean += d / float64(steps)
		if step >= steps-10 {
			end += d / 10
		}
	}
	return mean, end
}
