package train

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// TestFamilyCurvesEqualPEFT trains 20 steps over NF4 weights as PEFT did over what bitsandbytes made of them.
func TestFamilyCurvesEqualPEFT(t *testing.T) {
	t.Parallel()
	q := quant.Default()
	q.DoubleQuant = false
	for _, m := range golden.FamilyModels(t) {
		t.Run(m.Name, func(t *testing.T) { curveEqualsPEFT(t, m, m.Dir(t), &q, m.Runs(t).Curve) })
		if c := m.Runs(t).CurveOfFloats; c.Loss != nil {
			t.Run(m.Name+" not quantised", func(t *testing.T) { curveEqualsPEFT(t, m, m.Dir(t), nil, c) })
		}
	}
}

// curveEqualsPEFT takes the steps that PEFT took.
func curveEqualsPEFT(t *testing.T, m golden.FamilyModel, dir string, scheme *quant.Config, want golden.FamilyCurve) {
	b, err := session.OpenBase(context.Background(), dir, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	lora, c := peftConfigOf(t, m.Adapter(t)), Default()
	lora.Dropout = 0
	T := len(want.Rows[0])
	shape := session.Shape{Tokens: want.Batch * T, Sequences: want.Batch, MaxLen: T}
	ts := newTestStep(t, b, network(t, b, kernel.F32, scheme, &lora), shape, c, 2, m.Adapter(t))
	worst := 0.0
	for at := range want.Loss {
		var ids, labels []int32
		for k := range want.Batch {
			row := (want.Batch*at + k) % len(want.Rows)
			ids, labels = append(ids, want.Rows[row]...), append(labels, want.Labels[row]...)
		}
		trained := ts.fill(t, ids, labels, T)
		if trained != want.Trained[at] {
			t.Fatalf("step %d trains %d tokens, want %d", at, trained, want.Trained[at])
		}
		ts.set(t, "loss scale", 1/float64(trained))
		for _, u := range ts.Rates {
			h := adamNumbers(c, want.LR[at]*u.Factor, at+1)
			ts.set(t, u.Numbers, h[:]...)
		}
		ts.step(t)
		loss, norm := ts.read(t, ts.Loss)[0], ts.read(t, ts.Norm)[0]
		d := math.Abs(loss-want.Loss[at]) / want.Loss[at]
		if worst = max(worst, d); !(d <= 1e-4) {
			t.Errorf("step %d: loss %.9g, PEFT %.9g, relative %.3g", at, loss, want.Loss[at], d)
		}
		if d := math.Abs(norm-want.GradNorm[at]) / want.GradNorm[at]; !(d <= 1e-3) {
			t.Errorf("step %d: gradient norm %.9g, PEFT %.9g, relative %.3g", at, norm, want.GradNorm[at], d)
		}
	}
	t.Logf("losses differ by at most %.3g", worst)
	if last := want.Loss[len(want.Loss)-1]; len(want.Loss) != 20 || !(last < 0.95*want.Loss[0]) {
		t.Errorf("the loss falls from %v to %v in %d steps: the curve tests little", want.Loss[0], last, len(want.Loss))
	}
}

// TestFamiliesEvaluateAsTransformers: the NLL of tokenised rows, packed side by side, is the mean of what transformers
// gives row by row.
func TestFamiliesEvaluateAsTransformers(t *testing.T) {
	t.Parallel()
	for _, m := range golden.FamilyModels(t) {
		want := m.Runs(t)
		s := familySpec(t, m)
		s.Adapter, s.Quantization = "lora", nil
		e, err := infer.Evaluate(context.Background(), s.Evaluation(""), session.Env{})
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		d := math.Abs(e.Loss-want.Mean) / want.Mean
		t.Logf("%s: mean NLL %.9g, transformers %.9g, relative %.3g", m.Name, e.Loss, want.Mean, d)
		if !(d <= 1e-4) || e.Rows != len(want.Rows) {
			t.Errorf("%s: mean NLL of %d rows %.9g, transformers %.9g of %d", m.Name, e.Rows, e.Loss,
				want.Mean, len(want.Rows))
		}
	}
}

// familySpec is a QLoRA run of all linear layers, and the parameters that PEFT's adapter is on, on a model's rows.
func familySpec(t testing.TB, m golden.FamilyModel) Spec {
	t.Helper()
	var lines bytes.Buffer
	for _, r := range m.Runs(t).Rows {
		line, err := json.Marshal(map[string][]int32{"input_ids": r.IDs, "labels": r.Labels})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	q := quant.Default()
	s := DefaultSpec()
	s.BaseModel, s.Adapter, s.Quantization, s.Device = m.Dir(t), "qlora", &q, "cpu"
	s.LoRA.TargetModules, s.LoRA.R, s.LoRA.Alpha = adapter.Targets{adapter.AllLinear}, 4, 8
	s.LoRA.TargetParameters = peftConfigOf(t, m.Adapter(t)).TargetParameters
	s.Dataset.Path, s.Dataset.Format, s.Dataset.MaxLength = path, "tokenized", 32
	s.Training.MaxSteps, s.Training.BatchSize, s.Training.LearningRate = 12, 4, 5e-3
	s.OutputDir = filepath.Join(t.TempDir(), "run")
	return s
}

// TestFamiliesTrainAndResume: a QLoRA run learns, packed or not, and its adapter has the tensors that PEFT's has; the
// packed run, stopped and resumed, is the same to the byte.
func TestFamiliesTrainAndResume(t *testing.T) {
	t.Parallel()
	for _, m := range golden.FamilyModels(t) {
		whole := familySpec(t, m)
		whole.Dataset.Packing = true // TestFamilyCurvesEqualPEFT trains rows that are not packed
		want := mustStart(t, whole, Env{})
		if _, _, fall := LossFall(want.Losses); !(fall > 0.02) {
			t.Errorf("%s: the loss falls by %.3f: %v", m.Name, fall, want.Losses)
		}
		if got, peft := tensorNames(t, whole.OutputDir), tensorNames(t, m.Adapter(t)); !slices.Equal(got, peft) {
			t.Errorf("%s: the adapter has the tensors %v, PEFT's %v", m.Name, got, peft)
		}
		parts := whole
		parts.OutputDir = filepath.Join(t.TempDir(), "run")
		stop := stopping(5)
		if r := mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop}); r.Steps != 5 {
			t.Fatalf("%s: stopped after %d steps, want 5", m.Name, r.Steps)
		}
		parts.Training.Resume = "auto"
		mustStart(t, parts, Env{})
		if !bytes.Equal(golden.ReadFile(t, whole.OutputDir, adapter.WeightsFile),
			golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
			t.Errorf("%s: the resumed run trains another adapter", m.Name)
		}
	}
}

// tensorNames are those of a folder's adapter.
func tensorNames(t testing.TB, dir string) []string {
	t.Helper()
	f, err := weights.Open(filepath.Join(dir, adapter.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Names()
}
