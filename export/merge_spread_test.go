package export

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// TestMergeOnThreads: a merge on one thread and on several writes the same bytes and reports the same numbers, whatever
// the type and the base.
func TestMergeOnThreads(t *testing.T) {
	nf4, int8s := quant.Default(), quant.DefaultOf("int8")
	update := adapterOf(t, map[string][2]int{"model.layers.0.self_attn.q_proj": {64, 64},
		"model.layers.1.mlp.down_proj": {172, 64}, "model.layers.3.mlp.up_proj": {64, 172}},
		func(b bool, i int) float32 { return 0.1 * float32(math.Sin(float64(7*i))) })
	for _, c := range []struct {
		dtype   string
		trained *quant.Config
	}{{"bf16", nil}, {"bf16", &nf4}, {"fp16", &int8s}, {NF4, nil}, {NF4, &nf4}} {
		var first MergeReport
		var want *weights.Set
		for _, workers := range []int{1, 2, 5} {
			o := MergeOptions{Model: golden.StoriesDir(t), Adapters: One(update), Out: filepath.Join(t.TempDir(),
				"merged"), DType: c.dtype, Trained: c.trained, Check: []string{}, AllowLoss: true}
			r, err := Merge(context.Background(), o, session.Env{Workers: workers})
			if err != nil {
				t.Fatalf("%s: %v", c.dtype, err)
			}
			r.Output = ""
			if workers == 1 {
				first, want = r, read(t, o.Out)
				continue
			}
			compareSets(t, read(t, o.Out), want)
			if !reflect.DeepEqual(r, first) {
				t.Errorf("%s: on %d threads the report is\n%+v, on one\n%+v", c.dtype, workers, r, first)
			}
		}
	}
}

// TestLossIsRefusedBeforeWriting: what would be lost is known before the first byte, also where the sample of rows does
// not have the few that hold the update; and an update of such rows alone is not refused.
func TestLossIsRefusedBeforeWriting(t *testing.T) {
	model := filepath.Join(t.TempDir(), "bf16")
	zero := adapterOf(t, map[string][2]int{"model.layers.0.self_attn.q_proj": {64, 64}}, func(bool, int) float32 {
		return 0
	})
	if _, err := Merge(context.Background(), MergeOptions{Model: golden.StoriesDir(t), Adapters: One(zero), Out: model,
		DType: "bf16"}, session.Env{}); err != nil {
		t.Fatal(err)
	}
	few := func(rows float32) string { // a small update of all rows, and a larger one of a row
		return adapterOf(t, map[string][2]int{"model.layers.0.mlp.up_proj": {64, 172}}, func(b bool, i int) float32 {
			if b && i == 100 {
				return rows
			}
			return 1e-3
		})
	}
	above := t.TempDir()
	o := MergeOptions{Model: model, Adapters: One(few(1e-3)), Out: filepath.Join(above, "merged"), DType: "bf16",
		Check: []string{}}
	// a file where the folder would be made: whatever writes fails otherwise
	blocked := filepath.Join(above, ".partial-merged")
	if err := os.WriteFile(blocked, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Merge(context.Background(), o, session.Env{})
	if loss := (*LossError)(nil); !errors.As(err, &loss) || len(loss.Rounding.Layers) != 1 || loss.Rounding.Kept > 0.2 {
		t.Errorf("%v", err)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	o.Adapters = One(few(1000))
	if _, err := Merge(context.Background(), o, session.Env{}); err != nil {
		t.Errorf("an update of one row: %v", err)
	}
}
