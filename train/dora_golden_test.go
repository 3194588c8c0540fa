package train

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// doraStep is a step of an adapter that PEFT wrote with use_dora.
func doraStep(t *testing.T, b *session.Base, dir string, float kernel.DType, nf4 bool, z session.Shape,
	c Config) *testStep {
	t.Helper()
	saved, err := adapter.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close() //nolint:errcheck // read only
	scheme := ""
	if nf4 {
		scheme = "qlora_nf4"
	}
	nw := network(t, b, float, schemeOf(scheme), &saved.Config)
	nw.Method = saved.Method
	return newTestStep(t, b, nw, z, c, 2, dir)
}

// TestDoRAGradientsEqualPEFT compares loss and gradients, the magnitudes' among them. The case of all layers over dense
// weights is outside.
func TestDoRAGradientsEqualPEFT(t *testing.T) {
	b := stories(t)
	batch := golden.Open(t, golden.Path(t, "dora/batch.safetensors"))
	ids, labels, dims := batch.Ints("input_ids"), batch.Ints("labels"), batch.Shape("input_ids")
	for name, dir := range map[string]func(t *testing.T) string{
		"dora_rslora": func(t *testing.T) string { return golden.Path(t, "dora/dora_rslora") },
		"dora_qlora":  func(t *testing.T) string { return golden.Path(t, "dora/dora_qlora") },
		"dora":        func(t *testing.T) string { return golden.Outside(t, "goldens/methods/adapters/dora") },
	} {
		for _, c := range []struct {
			float               kernel.DType
			loss, tensor, norms float64
		}{{kernel.F32, 1e-5, 2e-3, 2e-3}, {kernel.F64, 1e-9, 1e-6, 1e-9}} {
			t.Run(name+" "+c.float.String(), func(t *testing.T) {
				dir := dir(t)
				z := session.Shape{Tokens: len(ids), Sequences: dims[0], MaxLen: dims[1]}
				ts := doraStep(t, b, dir, c.float, name == "dora_qlora", z, Default())
				trained := ts.fill(t, ids, labels, dims[1])
				ts.set(t, "loss scale", 1/float64(trained))
				ts.run.Run(step.SegmentBegin)
				ts.run.Run(step.SegmentMicro)
				var want struct {
					Loss  float64            `json:"loss_f64"`
					Norms map[string]float64 `json:"norm_f64"`
				}
				golden.JSON(t, filepath.Join(dir, "grads.json"), &want)
				golden.Near(t, "loss", ts.read(t, ts.Loss)[0], want.Loss, c.loss*want.Loss)
				ref := golden.Open(t, filepath.Join(dir, "grads.safetensors"))
				for _, p := range ts.Trained.Params {
					x, err := ts.memory.Tensor("gradient of " + p.Name)
					if err != nil {
						t.Fatal(err)
					}
					name, got := adapter.PEFTName(p.Name), numbers(x)
					if d := distance(got, ref.Floats(name)); !(d <= c.tensor) {
						t.Errorf("gradient of %s is off by %.3g, tolerance %.3g", p.Name, d, c.tensor)
					}
					var sum float64
					for _, g := range got {
						sum += g * g
					}
					golden.Near(t, "norm of "+name, math.Sqrt(sum), want.Norms[name], c.norms*want.Norms[name])
				}
			})
		}
	}
}

// TestDoRACurveEqualsPEFT trains 20 steps over NF4 as PEFT does, and compares what one layer is merged to.
func TestDoRACurveEqualsPEFT(t *testing.T) {
	b := stories(t)
	batches := golden.Open(t, golden.Path(t, "dora/dora_qlora_curve/batches.safetensors"))
	ids, labels := batches.Ints("input_ids"), batches.Ints("labels")
	const T, rows = 64, 2
	var want struct {
		Steps       int     `json:"steps"`
		WeightDecay float64 `json:"weight_decay"`
		Clip        float64 `json:"clip"`
		Double      curve   `json:"steps_f64"`
	}
	golden.JSON(t, golden.Path(t, "dora/dora_qlora_curve/curve.json"), &want)
	for _, v := range []struct {
		float              kernel.DType
		loss, norm, merged float64
	}{{kernel.F32, 1e-3, 2e-2, 2e-3}, {kernel.F64, 1e-9, 1e-9, 1e-6}} {
		t.Run(v.float.String(), func(t *testing.T) {
			c := Default()
			c.WeightDecay, c.MaxGradNorm, c.MaxSteps = want.WeightDecay, want.Clip, want.Steps
			ts := doraStep(t, b, golden.Path(t, "dora/dora_qlora_curve/init"), v.float, true,
				session.Shape{Tokens: rows * T, Sequences: rows, MaxLen: T}, c)
			for at := range want.Steps {
				from := at * rows * T
				trained := ts.fill(t, ids[from:from+rows*T], labels[from:from+rows*T], T)
				ts.set(t, "loss scale", 1/float64(trained))
				for _, u := range ts.Rates {
					h := adamNumbers(c, want.Double.LR[at]*u.Factor, at+1)
					ts.set(t, u.Numbers, h[:]...)
				}
				for _, s := range []string{step.SegmentBegin, step.SegmentMicro, step.SegmentNorm, step.SegmentUpdate} {
					ts.run.Run(s)
				}
				loss, norm := want.Double.Loss[at], want.Double.GradNorm[at]
				golden.Near(t, "loss", ts.read(t, ts.Loss)[0], loss, v.loss*loss)
				golden.Near(t, "gradient norm", ts.read(t, ts.Norm)[0], norm, v.norm*norm)
			}
			compareMerged(t, b, ts, v.merged)
		})
	}
}

// compareMerged merges a layer of the last step into the weight that the step computes with.
func compareMerged(t *testing.T, b *session.Base, ts *testStep, within float64) {
	t.Helper()
	const layer = "model.layers.1.self_attn.q_proj"
	w, _ := ts.Net.Weight(layer + ".weight")
	merged := make([]float32, 64*64)
	if err := w.Computed(b.Reader(), merged); err != nil {
		t.Fatal(err)
	}
	var own []adapter.Param
	for _, p := range ts.snapshot(t) {
		if strings.HasPrefix(p.Name, layer+".") {
			own = append(own, p)
		}
	}
	c := peftConfigOf(t, golden.Path(t, "dora/dora_qlora_curve/init"))
	merge, err := adapter.Methods["dora"].Merge(c, layer, own)
	if err != nil {
		t.Fatal(err)
	}
	merge(merged, 0)
	got := make([]float64, len(merged))
	for i, x := range merged {
		got[i] = float64(x)
	}
	ref := golden.Open(t, golden.Path(t, "dora/dora_qlora_curve/merged.safetensors")).Floats(layer + ".weight")
	if d := distance(got, ref); !(d <= within) {
		t.Errorf("the merged weight is off by %.3g, tolerance %.3g", d, within)
	}
}

// TestDoRARun trains over both kinds of base weights. The first loss is the base model's, as magnitudes start as the
// norms of its rows; a resumed run ends with the same bytes; the saved adapter, beside the base and merged into it,
// has the loss that the run ends with.
func TestDoRARun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, method := range []string{"dora", "qdora"} {
		s := testSpec(t, 6)
		s.Adapter, s.Dataset.ValSplit, s.Training.EvalOnStart = method, 0.05, true
		s.LoRA.LoRAPlusLRRatio, s.LoRA.UseRSLoRA, s.LoRA.Dropout = 4, true, 0.1
		if method == "dora" {
			s.Quantization = nil
		}
		r := mustStart(t, s, Env{})
		base, err := infer.Evaluate(ctx, s.Evaluation(""), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		beside, err := infer.Evaluate(ctx, s.Evaluation(s.OutputDir), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(*r.EvalBefore-base.Loss) / base.Loss; !(d <= 1e-6) {
			t.Errorf("%s begins with the loss %v, the base model has %v", method, *r.EvalBefore, base.Loss)
		}
		d := math.Abs(*r.EvalLoss-beside.Loss) / beside.Loss
		if !(d <= 2e-6) || math.Abs(base.Loss-beside.Loss) < 0.01 {
			t.Errorf("%s ends with the loss %v, the saved adapter has %v, the base model %v", method, *r.EvalLoss,
				beside.Loss, base.Loss)
		}
		config := golden.ReadFile(t, s.OutputDir, adapter.ConfigFile)
		if !strings.Contains(string(config), `"use_dora": true`) {
			t.Errorf("%s writes %s", method, config)
		}
		parts := s
		parts.OutputDir = filepath.Join(t.TempDir(), "run")
		stop := stopping(3)
		mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
		parts.Training.Resume = "auto"
		mustStart(t, parts, Env{})
		again := golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)
		if !bytes.Equal(golden.ReadFile(t, s.OutputDir, adapter.WeightsFile), again) {
			t.Errorf("%s: the resumed run trains another adapter", method)
		}
		if method == "qdora" { // merged, the base weights are those of the checkpoint
			continue
		}
		out := filepath.Join(t.TempDir(), "merged")
		o := export.MergeOptions{Model: s.BaseModel, Adapters: export.One(s.OutputDir), Out: out}
		if _, err := export.Merge(ctx, o, session.Env{}); err != nil {
			t.Fatal(err)
		}
		s.BaseModel = out
		merged, err := infer.Evaluate(ctx, s.Evaluation(""), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(merged.Loss-beside.Loss) / beside.Loss; !(d <= 1e-6) {
			t.Errorf("the merged model has the loss %v, the adapter beside it %v", merged.Loss, beside.Loss)
		}
	}
}
