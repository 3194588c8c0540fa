//go:build gpu

package train

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/replay"
	"github.com/tierlora/tierlora/train/step"
)

// gpuPrecisions are all that a GPU has, bf16 first.
var gpuPrecisions = []kernel.Precision{kernel.PrecisionBF16, kernel.PrecisionFP16,
	kernel.PrecisionTF32, kernel.PrecisionFP32}

// gradientErrors is ‖ours-ref‖ / ‖ref‖ over every gradient of a LoRA variant on stories260K, ref being PEFT's in
// float64.
func gradientErrors(t *testing.T, p kernel.Precision, variant string) (all errorNorm, loss float64) {
	t.Helper()
	on, err := graph.NewGPU(0, 0, p)
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close() //nolint:errcheck // the numbers were read
	b := stories(t)
	batch := golden.Open(t, golden.Path(t, "lora_grad/batch.safetensors"))
	ids, labels, dims := batch.Ints("input_ids"), batch.Ints("labels"), batch.Shape("input_ids")
	dir := golden.Path(t, "lora_grad/"+variant)
	cfg, c := peftConfigOf(t, dir), Default()
	ts := newTestStepOn(t, on, b, network(t, b, kernel.F32, nil, &cfg),
		session.Shape{Tokens: len(ids), Sequences: dims[0], MaxLen: dims[1]}, c, dir)
	defer ts.memory.Close() //nolint:errcheck // the numbers were read
	scale := 1.0
	if p.Scaled() {
		scale = c.LossScale
	}
	trained := ts.fill(t, ids, labels, dims[1])
	ts.set(t, "loss scale", 1/float64(trained))
	ts.send(t)
	for _, seg := range []string{step.SegmentBegin, step.SegmentMicro} {
		if err := ts.run.Run(seg); err != nil {
			t.Fatal(err)
		}
	}
	ref := golden.Open(t, filepath.Join(dir, "grads.safetensors"))
	for _, param := range ts.Trained.Params {
		name := "gradient of " + param.Name
		if err := ts.memory.Get(name); err != nil {
			t.Fatal(err)
		}
		x, err := ts.memory.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Clone(numbers(x))
		for i := range got {
			got[i] /= scale
		}
		all.add(got, ref.Floats("base_model.model."+param.Name))
	}
	var want struct {
		Loss float64 `json:"loss_f64"`
	}
	golden.JSON(t, filepath.Join(dir, "grads.json"), &want)
	return all, ts.read(t, ts.Loss)[0]/want.Loss - 1
}

// TestGPUGradientsByPrecision: rounding errors are as large as the type's unit. bf16's are held to PEFT's elsewhere
// (TestGPUErrorAgainstPEFT); fp16 has 3 bits more, so its error is an eighth of bf16's, TF32's GEMMs cut 2 bits more
// away than bf16's rounding would have to: a quarter. 1.5 times that is allowed. fp32 is held to what the CPU's float32
// is.
func TestGPUGradientsByPrecision(t *testing.T) {
	gputest.Need(t)
	for _, variant := range []string{"lora", "rslora", "lora_qv"} {
		bf16 := 0.0
		for _, p := range gpuPrecisions {
			all, loss := gradientErrors(t, p, variant)
			e, limit := all.relative(), math.Inf(1)
			switch p {
			case kernel.PrecisionBF16:
				bf16 = e
			case kernel.PrecisionFP16:
				limit = worse * bf16 / 8
			case kernel.PrecisionTF32:
				limit = worse * bf16 / 4
			default:
				limit = 1e-4
			}
			t.Logf("%s, %v: gradients off by %.3g, limit %.3g; loss by %.3g", variant, p, e, limit, loss)
			if !(e <= limit) {
				t.Errorf("%s, %v: gradients off by %.3g, limit %.3g", variant, p, e, limit)
			}
		}
	}
}

// TestGPUPrecisions trains the same steps in each precision, twice, stopped and resumed, and beside the CPU.
func TestGPUPrecisions(t *testing.T) {
	gputest.Need(t)
	cpu := testSpec(t, 12)
	cpu.Device = "cpu"
	want := mustStart(t, cpu, Env{})
	for _, p := range gpuPrecisions {
		a := cpu
		a.Device, a.Training.Precision, a.OutputDir = "cuda", p.String(), filepath.Join(t.TempDir(), "whole")
		got := mustStart(t, a, Env{})
		first := golden.ReadFile(t, a.OutputDir, adapter.WeightsFile)
		b := a
		b.OutputDir = filepath.Join(t.TempDir(), "again")
		mustStart(t, b, Env{})
		if !bytes.Equal(first, golden.ReadFile(t, b.OutputDir, adapter.WeightsFile)) {
			t.Errorf("%v: two runs of one spec train different adapters", p)
		}
		c := a
		c.OutputDir = filepath.Join(t.TempDir(), "parts")
		stop := stopping(5)
		mustStart(t, c, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
		c.Training.Resume = "auto"
		mustStart(t, c, Env{})
		if !bytes.Equal(first, golden.ReadFile(t, c.OutputDir, adapter.WeightsFile)) {
			t.Errorf("%v: the resumed run trains another adapter", p)
		}
		var m replay.Manifest
		if m, _ = replay.ReadManifest(a.OutputDir); m.Precision != p.String() {
			t.Errorf("%v: the manifest says %q", p, m.Precision)
		}
		worst := 0.0
		for i := range want.Losses {
			worst = max(worst, max(got.Losses[i]-want.Losses[i], want.Losses[i]-got.Losses[i]))
		}
		limit := map[kernel.Precision]float64{kernel.PrecisionBF16: 0.04, kernel.PrecisionFP16: 0.01,
			kernel.PrecisionTF32: 0.02, kernel.PrecisionFP32: 1e-4}[p]
		t.Logf("%v: losses %.5f to %.5f, at most %.3g from the CPU's", p, got.Losses[0], got.Losses[11], worst)
		if !(worst <= limit) {
			t.Errorf("%v: a loss is %.3g from the CPU's, at most %v", p, worst, limit)
		}
	}
}

// saved is what a checkpoint says of the optimizer.
type saved struct {
	scaling, moments []float32
	adapter          string
}

func scalingIn(t *testing.T, dir string) saved {
	t.Helper()
	f, err := weights.Decode(golden.ReadFile(t, dir, optimizerFile))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) []float32 {
		x, ok := f.Tensor(name)
		if !ok {
			t.Fatalf("%s holds no %s", dir, name)
		}
		v := make([]float32, x.Len())
		if err := weights.Float32s(x, v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	return saved{read(step.StateScaling), append(read("first moments"), read("second moments")...),
		string(golden.ReadFile(t, dir, adapter.WeightsFile))}
}

// TestGPUOverflowSkipsAStep begins at scales at which gradients overflow fp16.
func TestGPUOverflowSkipsAStep(t *testing.T) {
	gputest.Need(t)
	const high = 1 << 26
	s := testSpec(t, 20)
	s.Device, s.Training.Precision, s.Training.LossScale, s.Training.SaveSteps,
		s.Training.LoggingSteps = "cuda", "fp16", high, 1, 1
	said := ""
	env := Env{Env: session.Env{Log: func(line string) { said += line + "\n" }}}
	mustStart(t, s, env)
	lines := metricsLines(t, s.OutputDir)
	end := lines[len(lines)-1].LossScaling
	if end == nil || end.Skipped < 2 || end.Scale*float64(int(1)<<end.Skipped) != high ||
		strings.Count(said, "overflowed fp16 and was left out") != end.Skipped {
		t.Fatalf("from a scale of %v: %+v; said %s", high, end, said)
	}
	t.Logf("from a scale of %v: %d steps skipped, then %v", high, end.Skipped, end.Scale)

	// The least scale from which a run of two steps overflows: half of it does not, so one step is skipped.
	two := s
	two.Training.MaxSteps = 2
	for scale := end.Scale; ; scale *= 2 {
		two.OutputDir, two.Training.LossScale = filepath.Join(t.TempDir(), "two"), scale
		mustStart(t, two, Env{})
		lines = metricsLines(t, two.OutputDir)
		if lines[1].Skipped == 0 {
			continue
		}
		if lines[1].Skipped != 1 || lines[1].Scale != scale/2 {
			t.Fatalf("from a scale of %v two steps end with %+v, want one skipped", scale, lines[1].LossScaling)
		}
		before, after := scalingIn(t, filepath.Join(two.OutputDir, checkpoint.Name(1))),
			scalingIn(t, filepath.Join(two.OutputDir, checkpoint.Name(2)))
		want, skipped := []float32{float32(scale / 2), 1, 1}, before
		if lines[0].Skipped == 0 { // the second step
			want, skipped = []float32{float32(scale / 2), 0, 1}, after
			if !slices.Equal(before.moments, after.moments) || before.adapter != after.adapter {
				t.Error("the skipped step changed moments or adapter")
			}
		} else if slices.ContainsFunc(before.moments, func(x float32) bool { return x != 0 }) ||
			slices.Equal(before.moments, after.moments) {
			t.Error("the moments after the skipped first step are not zero, or the second did nothing")
		}
		if !slices.Equal(after.scaling, want) || skipped.scaling[1] != 0 {
			t.Errorf("the state is %v after one step, %v after two, want %v", before.scaling, after.scaling, want)
		}
		t.Logf("from a scale of %v one step of two is skipped: %v, then %v", scale, before.scaling, after.scaling)
		break
	}

	grow := s // growth reaches the overflow, stops and resumes through it
	grow.OutputDir, grow.Training.LossScale, grow.Training.LossScaleInterval,
		grow.Training.SaveSteps = filepath.Join(t.TempDir(), "grow"), end.Scale/2, 2, 0
	mustStart(t, grow, Env{})
	whole := metricsLines(t, grow.OutputDir)
	if last := whole[len(whole)-1]; last.Skipped < 2 {
		t.Errorf("doubling every second step from %v skipped %d steps in %d", end.Scale/2, last.Skipped, len(whole))
	}
	parts := grow
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(7)
	mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, Env{})
	if !bytes.Equal(golden.ReadFile(t, grow.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
		t.Error("the run resumed between skipped steps trains another adapter")
	}
}

// TestGPULossOverflowEnds: a forward pass beyond fp16's range is no matter of the scale.
func TestGPULossOverflowEnds(t *testing.T) {
	gputest.Need(t)
	s := testSpec(t, 12)
	s.Device, s.Training.Precision, s.Training.LearningRate, s.Training.WarmupRatio,
		s.Training.MaxGradNorm = "cuda", "fp16", 1e6, 0, 0
	_, err := Start(context.Background(), s, Env{})
	if !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "65504") {
		t.Errorf("a learning rate of a million in fp16: %v", err)
	}
}
