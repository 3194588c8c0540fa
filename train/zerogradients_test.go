package train

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

// TestZeroGradientIsAnError: attention of a layer whose output the base model multiplies by zero learns nothing; the
// run ends after three steps and names its tensors, warns where that is allowed, and says nothing of a sound model.
func TestZeroGradientIsAnError(t *testing.T) {
	spec := func(steps int) Spec {
		s := testSpec(t, steps)
		s.BaseModel, s.LoRA.TargetModules = editedModel(t, "layers.2.self_attn.o_proj.weight",
			func(data []byte) { clear(data) }), adapter.Targets{"q_proj", "v_proj"}
		s.Training.LRScheduler, s.Training.WarmupSteps = "linear", 2 // the first step's rate is zero
		return s
	}
	s := spec(6)
	r, err := Start(context.Background(), s, Env{})
	names := "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight, " +
		"base_model.model.model.layers.2.self_attn.q_proj.lora_B.weight, " +
		"base_model.model.model.layers.2.self_attn.v_proj.lora_A.weight, " +
		"base_model.model.model.layers.2.self_attn.v_proj.lora_B.weight were zero"
	if !errors.Is(err, ErrZeroGradient) || !strings.Contains(err.Error(), "step 3: no gradient: "+names) ||
		!strings.Contains(err.Error(), "training.allow_zero_gradients: true") || r.Steps != 3 {
		t.Errorf("after step %d: %v", r.Steps, err)
	}
	if exists(s.OutputDir, adapter.WeightsFile) {
		t.Error("the run left an adapter")
	}

	said := 0
	env := Env{}
	env.Log = func(line string) {
		if strings.HasPrefix(line, "warning: no gradient: ") {
			said++
		}
	}
	s = spec(6)
	s.Training.AllowZeroGradients = true
	if r := mustStart(t, s, env); r.Steps != 6 || said != 1 {
		t.Errorf("allowed: %d steps, %d warnings", r.Steps, said)
	}
	if s = spec(2); mustStart(t, s, Env{}).Steps != 2 {
		t.Error("two steps are too few to tell")
	}
	said = 0
	s = testSpec(t, 4)
	s.Training.LRScheduler, s.Training.WarmupSteps, s.Training.AllowZeroGradients = "linear", 2, true
	if mustStart(t, s, env); said != 0 {
		t.Error("a sound model was warned of")
	}
}

// TestEveryMatrixMoves: after a few steps every A and B differs from what it started from, and the adapter is in the
// forward pass: another one, or none, gives another loss.
func TestEveryMatrixMoves(t *testing.T) {
	t.Parallel()
	s := testSpec(t, 4)
	s.Training.SaveSteps = 1
	mustStart(t, s, Env{})
	first := golden.Open(t, filepath.Join(s.OutputDir, "checkpoint-1", adapter.WeightsFile))
	last := golden.Open(t, filepath.Join(s.OutputDir, adapter.WeightsFile))
	if n := len(last.Names()); n != 2*7*5 {
		t.Fatalf("%d tensors, want A and B of 35 layers", n)
	}
	start := map[string][]float32{}
	own := s.AdapterConfig()
	nw := network(t, stories(t), kernel.F32, nil, &own)
	_, trained, err := nw.Declared()
	if err != nil {
		t.Fatal(err)
	}
	params := trained.List()
	if err := adapter.NewStart(nw.Method, own, s.Seed).Fill(nil, nil, trained, params); err != nil {
		t.Fatal(err)
	}
	for _, p := range params {
		start[adapter.PEFTName(p.Name)] = p.Data
	}
	for _, name := range last.Names() {
		was, is := start[name], last.Floats(name)
		moved := 0
		for i, x := range is {
			if float32(x) != was[i] {
				moved++
			}
		}
		if moved < len(is)/2 {
			t.Errorf("%s: %d of %d numbers moved in 4 steps", name, moved, len(is))
		}
		if strings.HasSuffix(name, "lora_B.weight") && maxAbs(first.Floats(name)) == 0 {
			t.Errorf("%s did not move in the first step", name)
		}
	}
	loss := func(dir string) float64 {
		e, err := infer.Evaluate(context.Background(), s.Evaluation(dir), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		return e.Loss
	}
	base, early, late := loss(""), loss(filepath.Join(s.OutputDir, "checkpoint-1")), loss(s.OutputDir)
	if base == early || early == late || !(late < base) {
		t.Errorf("losses without adapter, after one step and after four: %v, %v, %v", base, early, late)
	}
}

func maxAbs(x []float64) (most float64) {
	for _, v := range x {
		most = max(most, v, -v)
	}
	return most
}

// TestWatchingChangesNothing: a run that is resumed while its gradients are watched trains the same adapter.
func TestWatchingChangesNothing(t *testing.T) {
	a := testSpec(t, 5)
	mustStart(t, a, Env{})
	b := a
	b.OutputDir = filepath.Join(t.TempDir(), "run")
	stop := stopping(2)
	mustStart(t, b, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	b.Training.Resume, b.Training.AllowZeroGradients = "auto", true
	mustStart(t, b, Env{})
	if !bytes.Equal(golden.ReadFile(t, b.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, a.OutputDir, adapter.WeightsFile)) {
		t.Error("a run stopped after two steps trains another adapter")
	}
}

// TestRouterOfOneExpert: the router of a mixture that gives each token to one expert, with a weight that is divided by
// itself, has no gradient, in PEFT neither: the run goes on.
func TestRouterOfOneExpert(t *testing.T) {
	s := familySpec(t, golden.FamilyModel{Folder: "experts", Name: "qwen3_moe"})
	path := filepath.Join(s.BaseModel, "config.json")
	raw := golden.ReadFile(t, path)
	for _, key := range [][2]string{{`"norm_topk_prob": false`, `"norm_topk_prob": true`},
		{`"num_experts_per_tok": 2`, `"num_experts_per_tok": 1`}} {
		if !bytes.Contains(raw, []byte(key[1])) {
			was := raw
			if raw = bytes.Replace(raw, []byte(key[0]), []byte(key[1]), 1); bytes.Equal(raw, was) {
				t.Fatalf("config.json has no %s", key[0])
			}
		}
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := mustStart(t, s, Env{}); !(r.Losses[len(r.Losses)-1] < r.Losses[0]) {
		t.Errorf("losses %v", r.Losses)
	}
}
