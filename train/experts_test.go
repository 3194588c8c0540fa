package train

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// TestMergedExperts: an adapter on router and experts, merged into their weights, gives the loss that it gives beside them.
func TestMergedExperts(t *testing.T) {
	ctx := context.Background()
	s := familySpec(t, golden.FamilyModel{Folder: "experts", Name: "qwen3_moe"})
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
	report, err := export.Merge(ctx, s.BaseModel, s.OutputDir, out, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * (4 + 1 + 3*5); report.Layers != want {
		t.Errorf("%d layers are merged, want %d", report.Layers, want)
	}
	s.BaseModel = out
	// The merged weights are rounded to the checkpoint's bf16.
	if merged := loss(""); !(math.Abs(merged-beside) <= 0.02*math.Abs(beside-base)) {
		t.Errorf("the loss of the merged model is %.6f, with the adapter beside it %.6f, without %.6f", merged, beside, base)
	}
}
