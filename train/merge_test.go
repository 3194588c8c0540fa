package train

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// A merged model gives the losses of the model with its adapter beside it.
func TestMergedEqualsUnmerged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := testSpec(t, 5)
	s.Adapter, s.Quantization = "lora", nil
	s.LoRA.UseRSLoRA, s.LoRA.RankPattern = true, map[string]int{"q_proj": 3}
	mustStart(t, s, Env{})
	beside, err := infer.Evaluate(ctx, s.Evaluation(s.OutputDir), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "merged")
	report, err := export.Merge(ctx, export.MergeOptions{Model: s.BaseModel, Adapters: export.One(s.OutputDir),
		Out: out}, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Layers != 35 || report.Bytes == 0 {
		t.Errorf("report %+v, want 35 layers", report)
	}
	base, err := infer.Evaluate(ctx, s.Evaluation(""), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	s.BaseModel = out
	merged, err := infer.Evaluate(ctx, s.Evaluation(""), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := math.Abs(merged.Loss - beside.Loss); !(diff <= 1e-6*beside.Loss) {
		t.Errorf("loss of the merged model %.9f, with the adapter beside it %.9f", merged.Loss, beside.Loss)
	}
	if !(math.Abs(base.Loss-beside.Loss) > 0.01) {
		t.Errorf("the adapter changes the loss from %v to %v only: the comparison shows nothing",
			base.Loss, beside.Loss)
	}
	t.Logf("loss %.9f merged, %.9f beside, %.9f without", merged.Loss, beside.Loss, base.Loss)

	if _, err := export.Merge(ctx, export.MergeOptions{Model: s.BaseModel, Adapters: export.One(s.OutputDir), Out: out},
		session.Env{}); err == nil || !strings.Contains(err.Error(),
		"it holds model.safetensors already; name another folder") {
		t.Errorf("merging over a model: %v", err)
	}
	if _, err := export.Merge(ctx, export.MergeOptions{Model: s.BaseModel, Adapters: export.One(t.TempDir()),
		Out: filepath.Join(t.TempDir(), "x")}, session.Env{}); err == nil {
		t.Error("an empty adapter folder was merged")
	}
}

// What the adapter does not touch keeps its bytes.
func TestMergeKeepsTheRest(t *testing.T) {
	ctx := context.Background()
	s := testSpec(t, 1)
	s.LoRA.TargetModules = []string{"v_proj"}
	mustStart(t, s, Env{})
	out := filepath.Join(t.TempDir(), "merged")
	if _, err := export.Merge(ctx, export.MergeOptions{Model: s.BaseModel, Adapters: export.One(s.OutputDir), Out: out},
		session.Env{}); err != nil {
		t.Fatal(err)
	}
	before, err := weights.OpenDir(s.BaseModel)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	after, err := weights.OpenDir(out)
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	for _, name := range before.Names() {
		a, _ := before.Tensor(name)
		b, ok := after.Tensor(name)
		if same := string(a.Data) == string(b.Data); !ok || a.DType != b.DType ||
			same == strings.Contains(name, ".v_proj.") {
			t.Errorf("%s: there %v, type %v, bytes unchanged %v", name, ok, b.DType, same)
		}
	}
	for _, name := range []string{"config.json", "tokenizer.json"} {
		want, err1 := os.ReadFile(filepath.Join(s.BaseModel, name))
		got, err2 := os.ReadFile(filepath.Join(out, name))
		if err1 != nil || err2 != nil || string(got) != string(want) {
			t.Errorf("%s differs from the base model's (%v, %v)", name, err1, err2)
		}
	}
}
