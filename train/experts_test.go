package train

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// TestMergedExperts: an adapter on router and experts, or on parameters of experts, merged into their weights, gives
// the loss that it gives beside them.
func TestMergedExperts(t *testing.T) {
	for name, layers := range map[string]int{"gpt_oss_balanced": 2 * (4 + 2), "qwen3_moe": 2 * (4 + 1 + 3*5),
		"qwen3_moe_fused": 2 * (4 + 3*5), "mixtral_fused": 2 * (4 + 3*4)} {
		t.Run(name, func(t *testing.T) { mergedExperts(t, name, layers) })
	}
}

func mergedExperts(t *testing.T, name string, layers int) {
	ctx := context.Background()
	m := golden.FamilyModel{Folder: "experts", Name: name}
	if strings.Contains(name, "fused") {
		m.Folder = "fused_experts"
	}
	s := familySpec(t, m)
	s.Adapter, s.Quantization = "lora", nil
	mustStart(t, s, Env{})
	loss := func(adapterDir string) float64 {
		e, err := infer.Evaluate(ctx, s.Evaluation(adapterDir), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		return e.Loss
	}
	beside, base := loss(s.OutputDir), loss("")
	out := filepath.Join(t.TempDir(), "merged")
	report, err := export.Merge(ctx, export.MergeOptions{Model: s.BaseModel, Adapters: export.One(s.OutputDir),
		Out: out}, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Layers != layers {
		t.Errorf("%d layers are merged, want %d", report.Layers, layers)
	}
	s.BaseModel = out
	// The merged weights are rounded to the checkpoint's bf16.
	if merged := loss(""); !(math.Abs(merged-beside) <= 0.02*math.Abs(beside-base)) {
		t.Errorf("the loss of the merged model is %.6f, with the adapter beside it %.6f, without %.6f", merged, beside,
			base)
	}
}

// TestExtentsAreWhatIsTrained: the tensors that an optimizer tells apart lie one after the other, and are all that is
// trained, in every family's way of stacking them.
func TestExtentsAreWhatIsTrained(t *testing.T) {
	t.Parallel()
	for _, m := range golden.FamilyModels(t) {
		b, err := session.OpenBase(t.Context(), m.Dir(t), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		lora := peftConfigOf(t, m.Adapter(t))
		ts := newTestStepOn(t, graph.NewCPU(1), b, network(t, b, kernel.F32, nil, &lora),
			session.Shape{Tokens: 8, Sequences: 1, MaxLen: 8}, Default(), m.Adapter(t))
		for i, p := range ts.Trained.Params {
			end := 0
			for _, e := range step.Extents(ts.Trained, ts.Trained.Params[i:i+1]) {
				if e.From != end {
					t.Errorf("%s: a tensor of %s begins at %d, the one before ends at %d", m.Name, p.Name, e.From, end)
				}
				end = e.From + e.Numbers
			}
			if end != p.Type.Elems() {
				t.Errorf("%s: the tensors in %s are %d numbers, it has %d", m.Name, p.Name, end, p.Type.Elems())
			}
		}
		ts.memory.Close() //nolint:errcheck // nothing was computed
		b.Close()         //nolint:errcheck // nothing is read any more
	}
}

// TestExpertsLeavePaddingOut: loss and gradients of a mixture are those of its rows, wherever there is padding behind
// or between them: where its experts are balanced, and, as far as rows lie at the same places, where inputs of their
// adapters are dropped.
func TestExpertsLeavePaddingOut(t *testing.T) {
	for _, c := range []struct {
		name    string
		dropout float64
	}{{"mixtral_balanced", 0}, {"gpt_oss_balanced", 0}, {"mixtral_balanced", 0.4}, {"qwen3_moe", 0.4}} {
		m := golden.FamilyModel{Folder: "experts", Name: c.name}
		b, err := session.OpenBase(t.Context(), m.Dir(t), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		curve := m.Runs(t).Curve
		rows := dataset.Memory{{IDs: curve.Rows[0][:7], Labels: curve.Labels[0][:7]},
			{IDs: curve.Rows[1][:6], Labels: curve.Labels[1][:6]}}
		lora := peftConfigOf(t, m.Adapter(t))
		lora.Dropout = c.dropout
		layouts := []dataset.Options{{BatchSize: 2, T: 7}, {BatchSize: 2, T: 13}, {BatchSize: 5, T: 8}}
		if c.dropout == 0 {
			layouts = append(layouts, dataset.Options{BatchSize: 2, T: 12, Padded: true},
				dataset.Options{BatchSize: 2, T: 9, Packing: true},
				dataset.Options{BatchSize: 3, T: 8, Packing: true, Longest: 7})
		}
		var want []float64
		for _, o := range layouts {
			got := gradientsOf(t, b, lora, m.Adapter(t), rows, o)
			if want == nil {
				want = got
			}
			if d := distance(got, want); !(d <= 1e-12) || len(got) != len(want) {
				t.Errorf("%s, dropout %v, %+v: off by %.3g", c.name, c.dropout, o, d)
			}
		}
		b.Close() //nolint:errcheck // nothing is read any more
	}
}

// gradientsOf are the loss and the gradients of a loader's first micro-batch, in float64.
func gradientsOf(t *testing.T, b *session.Base, lora adapter.Config, from string, rows dataset.Rows,
	o dataset.Options) []float64 {
	t.Helper()
	l, err := dataset.NewLoader(rows, o)
	if err != nil {
		t.Fatal(err)
	}
	ts := newTestStepOn(t, graph.NewCPU(1), b, network(t, b, kernel.F64, nil, &lora), infer.ShapeOf(l), Default(), from)
	defer ts.memory.Close() //nolint:errcheck // the numbers were read
	to, err := session.BindBatch(ts.memory, "")
	if err != nil {
		t.Fatal(err)
	}
	window, _, err := l.NextWindow(1)
	if err != nil {
		t.Fatal(err)
	}
	to.Fill(window[0], session.Part{})
	ts.set(t, "loss scale", 1/float64(objective.ShiftLabels(ts.ints(t, "labels"), window[0].Labels,
		window[0].CuSeqlens)))
	for _, s := range []string{step.SegmentBegin, step.SegmentMicro} {
		if err := ts.run.Run(s); err != nil {
			t.Fatal(err)
		}
	}
	got := slices.Clone(ts.read(t, ts.Loss))
	for _, p := range ts.Trained.Params {
		x, err := ts.memory.Tensor(step.GradientName(p.Name))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, numbers(x)...)
	}
	return got
}

// TestTargetParametersRefuse: what PEFT would not take, or what is no matrix of experts, is refused by name.
func TestTargetParametersRefuse(t *testing.T) {
	one := func(raw []byte) []byte {
		return bytes.Replace(raw, []byte(`"num_local_experts": 4`), []byte(`"num_local_experts": 1`), 1)
	}
	for _, c := range []struct{ model, target, want string }{
		{"gpt_oss", "experts.up_proj",
			"lora.target_parameters: experts.up_proj matches no parameter of the model: it has experts.down_proj, " +
				"experts.gate_up_proj, router.weight"},
		{"gpt_oss", "own_proj", "lora.target_parameters: own_proj matches no parameter of the model: it has " +
			"experts.down_proj, experts.gate_up_proj, router.weight"},
		{"gpt_oss", "layers.2.mlp.experts.down_proj",
			"lora.target_parameters: layers.2.mlp.experts.down_proj matches no parameter of the model: it has " +
				"experts.down_proj, experts.gate_up_proj, router.weight"},
		{"gpt_oss", "experts.down_proj_bias",
			"lora.target_parameters: experts.down_proj_bias matches model.layers.0.mlp.experts.down_proj_bias, " +
				"which is no parameter of experts: it has experts.down_proj, experts.gate_up_proj, router.weight"},
		{"gpt_oss", "experts.gate_up_proj",
			"lora.target_parameters: model.layers.0.mlp.experts.gate_up_proj is of one expert, for which PEFT has " +
				"no update of the parameter's shape"},
		{"qwen3_moe", "experts.3.up_proj.weight",
			"lora.target_parameters: experts.3.up_proj.weight matches model.layers.0.mlp.experts.3.up_proj.weight, " +
				"which is no parameter of experts: it has experts.down_proj, experts.gate_up_proj, gate.weight"},
		{"mixtral_balanced", "block_sparse_moe.experts.down_proj",
			"lora.target_parameters: block_sparse_moe.experts.down_proj matches no parameter of the model: it has " +
				"experts.down_proj, experts.gate_up_proj, gate.weight"},
		{"mixtral_balanced", "experts.w1",
			"lora.target_parameters: experts.w1 matches no parameter of the model: it has experts.down_proj, " +
				"experts.gate_up_proj, gate.weight"},
		{"qwen3", "experts.down_proj",
			"lora.target_parameters: experts.down_proj matches no parameter of the model: it has no experts; " +
				"lora.target_modules names its linear layers"},
	} {
		folder := "experts"
		if c.model == "qwen3" {
			folder = "llama_like"
		}
		s := familySpec(t, golden.FamilyModel{Folder: folder, Name: c.model})
		s.LoRA.TargetParameters = []string{c.target}
		if strings.Contains(c.want, "one expert") {
			path := filepath.Join(s.BaseModel, "config.json")
			raw := one(golden.ReadFile(t, path))
			if err := os.WriteFile(path, bytes.Replace(raw, []byte(`"num_experts_per_tok": 2`),
				[]byte(`"num_experts_per_tok": 1`), 1), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := PlanRun(context.Background(), s, Env{}); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s, %s: %v\nwant %s", c.model, c.target, err, c.want)
		}
	}
	s := familySpec(t, golden.FamilyModel{Folder: "experts", Name: "gpt_oss_balanced"})
	s.LoRA.Dropout = 0.1
	// of routers, and of experts without an adapter.
	for target, parameter := range map[string]string{"gate": "experts.gate_up_proj", "up_proj": "experts.down_proj"} {
		fused := familySpec(t, golden.FamilyModel{Folder: "fused_experts", Name: "qwen3_moe_fused"})
		fused.LoRA.TargetModules, fused.LoRA.TargetParameters = adapter.Targets{"q_proj", target}, []string{parameter}
		wanted := "lora.target_modules: " + target +
			" matches no linear layer of the model; it has k_proj, o_proj, q_proj, v_proj; with " +
			"lora.target_parameters " +
			"experts and routers are parameters, as in transformers 5: name layers of attention"
		if _, err := PlanRun(context.Background(), fused, Env{}); err == nil ||
			!strings.HasSuffix(err.Error(), wanted) {
			t.Errorf("%v\nwant %s", err, wanted)
		}
	}
	const want = "lora.dropout: 0.1 does not go with target_parameters"
	if problems := s.LoRA.Validate(); len(problems) != 1 || !strings.Contains(problems[0].Error(), want) {
		t.Errorf("%v, want %s", problems, want)
	}
	s.LoRA.Dropout, s.LoRA.TargetModules = 0, nil
	if _, err := PlanRun(context.Background(), s, Env{}); err != nil {
		t.Errorf("parameters alone: %v", err)
	}
	s.LoRA.TargetParameters = nil
	if problems := s.LoRA.Validate(); len(problems) != 1 ||
		!strings.Contains(problems[0].Error(), "lora.target_modules: name at least one module") {
		t.Errorf("no target at all: %v", problems)
	}
}

// TestTargetsOfExpertsBesideParameters: Unsloth names the layers of experts too, which the parameters train; the
// adapter's file has the names of layers alone, as PEFT reads others as more parameters, and a module that transformers
// 4 alone has, at which PEFT refuses it.
func TestTargetsOfExpertsBesideParameters(t *testing.T) {
	for _, c := range []struct{ targets, saved adapter.Targets }{
		{adapter.Targets{"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
			adapter.Targets{"experts.0", "o_proj", "q_proj"}},
		{adapter.Targets{"gate_proj", "up_proj", "down_proj"}, adapter.Targets{"experts.0"}},
	} {
		s := familySpec(t, golden.FamilyModel{Folder: "fused_experts", Name: "qwen3_moe_fused"})
		s.LoRA.TargetModules, s.Training.MaxSteps = c.targets, 1
		mustStart(t, s, Env{})
		if got := peftConfigOf(t, s.OutputDir); len(got.TargetModules) != len(c.saved) ||
			!slices.Equal(got.TargetModules, c.saved) || len(got.TargetParameters) != 2 {
			t.Errorf("%v is saved as %v and %v", c.targets, got.TargetModules, got.TargetParameters)
		}
	}
}
