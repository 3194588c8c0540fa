package train

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/replay"
	"github.com/tierlora/tierlora/train/step"
)

// TestTensorNormsEqualPEFT: the norms that a step takes of each tensor are those of PEFT's gradients, and the whole
// norm is made of them.
func TestTensorNormsEqualPEFT(t *testing.T) {
	b := stories(t)
	batch := golden.Open(t, golden.Path(t, "lora_grad/batch.safetensors"))
	ids, labels, dims := batch.Ints("input_ids"), batch.Ints("labels"), batch.Shape("input_ids")
	dir := golden.Path(t, "lora_grad/lora")
	cfg, c := peftConfigOf(t, dir), Default()
	c.GradNormSteps = 1
	var want struct {
		Norms map[string]float64 `json:"norm_f64"`
	}
	golden.JSON(t, filepath.Join(dir, "grads.json"), &want)
	for _, float := range []kernel.DType{kernel.F32, kernel.F64} {
		ts := newTestStep(t, b, network(t, b, float, nil, &cfg),
			session.Shape{Tokens: len(ids), Sequences: dims[0], MaxLen: dims[1]}, c, 2, dir)
		trained := ts.fill(t, ids, labels, dims[1])
		ts.set(t, "loss scale", 1/float64(trained))
		for _, s := range []string{step.SegmentBegin, step.SegmentMicro, step.SegmentNorm, step.SegmentNorms} {
			if err := ts.run.Run(s); err != nil {
				t.Fatal(err)
			}
		}
		x, err := ts.run.Read(ts.TensorNorms)
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		named := ts.NormsIn(x)
		if len(named) != len(want.Norms) {
			t.Errorf("%d norms, PEFT has %d", len(named), len(want.Norms))
		}
		for _, n := range named {
			golden.Near(t, n.Name, n.Norm, want.Norms[n.Name], 1e-4*want.Norms[n.Name])
			sum += n.Norm * n.Norm
		}
		whole := ts.read(t, ts.Norm)[0]
		golden.Near(t, "root of the sum of squares", math.Sqrt(sum), whole, 1e-6*whole)
	}
}

// TestGradNormsFile: the file has its lines, in the order of the model, also of a run that was stopped; what is trained
// is the same to the byte, and the plan has the memory of it.
func TestGradNormsFile(t *testing.T) {
	t.Parallel()
	without := testSpec(t, 6)
	without.Training.GradientAccumulationSteps = 2
	mustStart(t, without, Env{})
	s := without
	s.Training.GradNormSteps, s.OutputDir = 2, filepath.Join(t.TempDir(), "run")
	plan, err := PlanRun(t.Context(), s, Env{})
	if err != nil {
		t.Fatal(err)
	}
	r := mustStart(t, s, Env{})
	if r.HeldBytes != plan.TotalBytes {
		t.Errorf("the run holds %d bytes, the plan says %d", r.HeldBytes, plan.TotalBytes)
	}
	for _, name := range []string{adapter.WeightsFile, filepath.Join("checkpoint-6", "optimizer.safetensors")} {
		if !bytes.Equal(golden.ReadFile(t, without.OutputDir, name), golden.ReadFile(t, s.OutputDir, name)) {
			t.Errorf("%s differs from the run's without norms", name)
		}
	}
	if exists(without.OutputDir, GradNormsFile) {
		t.Error("a run that was not asked wrote norms")
	}
	text := golden.ReadFile(t, s.OutputDir, GradNormsFile)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3:\n%s", len(lines), text)
	}
	was, err := replay.ReadManifest(s.OutputDir)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := Verify(t.Context(), s, Env{}, was, 2); err != nil || !v.Equal || len(v.Changed) > 0 {
		t.Errorf("the replay of a run with norms: %+v, %v", v, err)
	}
	metrics := metricsLines(t, s.OutputDir)
	for i, line := range lines {
		var l struct {
			Step     int
			GradNorm float64            `json:"grad_norm"`
			Clipped  float64            `json:"grad_norm_clipped"`
			Tensors  map[string]float64 `json:"tensors"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		m, sum := metrics[2*i+1], 0.0
		for _, n := range l.Tensors {
			sum += n * n
		}
		if l.Step != 2*i+2 || l.GradNorm != m.GradNorm || l.Clipped != m.GradNormClipped || len(l.Tensors) != 2*7*5 {
			t.Errorf("line %d is of step %d, %d tensors, norm %v; metrics.jsonl has %+v", i, l.Step,
				len(l.Tensors), l.GradNorm, m)
		}
		golden.Near(t, "the whole norm", math.Sqrt(sum), l.GradNorm, 1e-6*l.GradNorm)
		first, second := strings.Index(line, "layers.0.self_attn.q_proj.lora_A.weight"),
			strings.Index(line, "layers.0.self_attn.q_proj.lora_B.weight")
		if last := strings.Index(line, `"base_model.model.model.layers.4.mlp.down_proj.lora_B.weight"`); !(first > 0 &&
			first < second && second < last) {
			t.Errorf("the order of the tensors: %s", line)
		}
	}

	parts := s
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(3)
	mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	// a crash after the checkpoint leaves lines that are not of the resumed run, and half of one
	later := append(bytes.Clone(golden.ReadFile(t, parts.OutputDir, GradNormsFile)),
		`{"step":4,"grad_norm":7}`+"\n"+`{"step":6,"gr`...)
	if err := os.WriteFile(filepath.Join(parts.OutputDir, GradNormsFile), later, 0o644); err != nil {
		t.Fatal(err)
	}
	parts.Training.Resume = "auto"
	mustStart(t, parts, Env{})
	if got := golden.ReadFile(t, parts.OutputDir, GradNormsFile); !bytes.Equal(got, text) {
		t.Errorf("the stopped run wrote\n%s\nthe whole one\n%s", got, text)
	}
}
