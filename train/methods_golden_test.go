package train

import (
	"bytes"
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
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

// furtherMethods are the adapter methods beside LoRA and DoRA, each with what its runs in tests set.
var furtherMethods = map[string]func(s *adapter.Sections){
	"ia3":  func(*adapter.Sections) {},
	"miss": func(s *adapter.Sections) { s.MiSS.R, s.MiSS.Dropout = 8, 0.1 },
	"lokr": func(s *adapter.Sections) { s.LoKr.R = 4 },
	"oft":  func(s *adapter.Sections) { s.OFT.OFTBlockSize = 8 },
	"vera": func(s *adapter.Sections) { s.VeRA.R, s.VeRA.ProjectionPRNGKey = 24, 5 },
}

// TestMethodGradientsEqualPEFT compares the loss and the norm of each tensor's gradient with PEFT's and, where the
// whole set is there, the gradients and a weight that the method makes.
func TestMethodGradientsEqualPEFT(t *testing.T) {
	b := stories(t)
	batch := golden.Open(t, golden.Path(t, "dora/batch.safetensors"))
	ids, labels, dims := batch.Ints("input_ids"), batch.Ints("labels"), batch.Shape("input_ids")
	for _, name := range slices.Sorted(maps.Keys(furtherMethods)) {
		for _, c := range []struct {
			float               kernel.DType
			loss, tensor, norms float64
		}{{kernel.F32, 1e-5, 2e-3, 2e-3}, {kernel.F64, 1e-9, 1e-6, 1e-9}} {
			t.Run(name+" "+c.float.String(), func(t *testing.T) {
				dir := golden.Path(t, "methods/"+name)
				saved, err := adapter.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer saved.Close() //nolint:errcheck // read only
				nw := network(t, b, c.float, nil, &saved.Config)
				nw.Method = saved.Method
				z := session.Shape{Tokens: len(ids), Sequences: dims[0], MaxLen: dims[1]}
				ts := newTestStep(t, b, nw, z, Default(), 2, dir)
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
				whole := wholeSet(name)
				for _, p := range ts.Trained.Params {
					x, err := ts.memory.Tensor("gradient of " + p.Name)
					if err != nil {
						t.Fatal(err)
					}
					key, got, sum := adapter.PEFTName(p.Name), numbers(x), 0.0
					for _, g := range got {
						sum += g * g
					}
					golden.Near(t, "norm of "+key, math.Sqrt(sum), want.Norms[key], c.norms*want.Norms[key])
					if whole != "" {
						ref := golden.Open(t, filepath.Join(whole, "grads.safetensors")).Floats(key)
						if d := distance(got, ref); !(d <= c.tensor) {
							t.Errorf("gradient of %s is off by %.3g, tolerance %.3g", p.Name, d, c.tensor)
						}
					}
				}
				if whole != "" && c.float == kernel.F32 {
					compareEffective(t, b, ts, saved, filepath.Join(whole, "grads.safetensors"))
				}
			})
		}
	}
}

// wholeSet returns the folder of a method's reference numbers outside of the repository; "" = it is not there.
func wholeSet(name string) string {
	dir := filepath.Join(os.Getenv(golden.Env), "goldens/methods/adapters", name)
	if _, err := os.Stat(dir); os.Getenv(golden.Env) == "" || err != nil {
		return ""
	}
	return dir
}

// compareEffective merges layers into the base weights and compares those of which PEFT's are known.
func compareEffective(t *testing.T, b *session.Base, ts *testStep, saved *adapter.Saved, path string) {
	t.Helper()
	ref := golden.Open(t, path)
	mergers, err := saved.Method.MergersOf(saved.Config, ts.Trained, ts.snapshot(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ref.Names() {
		layer, ok := strings.CutPrefix(strings.TrimSuffix(name, ".weight"), "effective.")
		if !ok {
			continue
		}
		w, _ := ts.Net.Weight(layer + ".weight")
		merged := make([]float32, w.Shape[0]*w.Shape[1])
		if err := b.Reader().Float32s(w.Name, 0, merged); err != nil {
			t.Fatal(err)
		}
		half := w.Shape[0] / 2 * w.Shape[1] // rows in two parts, as callers have them
		mergers[layer](merged[half:], w.Shape[0]/2)
		mergers[layer](merged[:half], 0)
		if d := distance(golden.Numbers(merged), ref.Floats(name)); !(d <= 1e-6) {
			t.Errorf("the weight of %s is off by %.3g", layer, d)
		}
	}
}

// TestMethodRuns trains each method over both kinds of base weights. A run begins at the base model's loss; a resumed
// run ends with the same bytes; the saved adapter, beside the base and merged into it, has the loss that the run ends
// with, and another run continues from it.
func TestMethodRuns(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(furtherMethods)) {
		for _, method := range []string{name, "q" + name} {
			t.Run(method, func(t *testing.T) {
				s := testSpec(t, 6)
				s.Adapter, s.Dataset.ValSplit, s.Training.EvalOnStart = method, 0.05, true
				s.LoRA, s.Training.LearningRate = DefaultSpec().LoRA, 1e-2
				furtherMethods[name](&s.Sections)
				if method == name {
					s.Quantization = nil
				}
				methodRun(t, s, method == name)
			})
		}
	}
}

// startFrom sets init_from in the section of the configuration's method.
func startFrom(s *Spec, dir string) {
	for name, at := range map[string]*string{"ia3": &s.IA3.InitFrom, "lokr": &s.LoKr.InitFrom, "miss": &s.MiSS.InitFrom,
		"oft": &s.OFT.InitFrom, "vera": &s.VeRA.InitFrom} {
		if s.Adapter == name || s.Adapter == "q"+name {
			*at = dir
		}
	}
}

func methodRun(t *testing.T, s Spec, merges bool) {
	t.Helper()
	ctx := context.Background()
	r := mustStart(t, s, Env{})
	evaluated := func(adapter string) float64 {
		t.Helper()
		e, err := infer.Evaluate(ctx, s.Evaluation(adapter), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		return e.Loss
	}
	base, beside := evaluated(""), evaluated(s.OutputDir)
	if d := math.Abs(*r.EvalBefore-base) / base; !(d <= 2e-6) {
		t.Errorf("it begins with the loss %v, the base model has %v", *r.EvalBefore, base)
	}
	if d := math.Abs(*r.EvalLoss-beside) / beside; !(d <= 2e-6) || base-beside < 1e-4 {
		t.Errorf("it ends with the loss %v, the saved adapter has %v, the base model %v", *r.EvalLoss, beside, base)
	}
	parts := s
	parts.OutputDir = filepath.Join(t.TempDir(), "run")
	stop := stopping(3)
	mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, Env{})
	for _, file := range []string{adapter.WeightsFile, adapter.ConfigFile} {
		if !bytes.Equal(golden.ReadFile(t, s.OutputDir, file), golden.ReadFile(t, parts.OutputDir, file)) {
			t.Errorf("the resumed run writes another %s", file)
		}
	}
	next := s
	next.OutputDir = filepath.Join(t.TempDir(), "next")
	startFrom(&next, s.OutputDir)
	if n := mustStart(t, next, Env{}); !(math.Abs(*n.EvalBefore-beside)/beside <= 2e-6) || n.LastLoss >= r.FirstLoss {
		t.Errorf("a run from the adapter begins with the loss %v, the adapter has %v", *n.EvalBefore, beside)
	}
	if !merges { // merged, the base weights are those of the checkpoint
		return
	}
	out := filepath.Join(t.TempDir(), "merged")
	o := export.MergeOptions{Model: s.BaseModel, Adapters: export.One(s.OutputDir), Out: out}
	if _, err := export.Merge(ctx, o, session.Env{}); err != nil {
		t.Fatal(err)
	}
	s.BaseModel = out
	if merged := evaluated(""); !(math.Abs(merged-beside)/beside <= 2e-6) {
		t.Errorf("the merged model has the loss %v, the adapter beside it %v", merged, beside)
	}
}
