package train

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// TestStrict: a layout that auto settles for is said in the plan with cost and remedy, and refused with training.strict
// before the output folder is made; one that the configuration names is no slow path.
func TestStrict(t *testing.T) {
	s := testSpec(t, 4)
	s.Device, s.Training.Strict = "cpu", true
	lean := leanest(t, s) // gradient_checkpointing: full, which it asks for
	if lean.Slow != nil || strings.Contains(lean.String(), "slow path") {
		t.Errorf("a layout that was asked for: %v", lean.Slow)
	}
	_, err := planIn(lean.TotalBytes, s)
	const want = "the run would leave a fast path, which training.strict refuses:\n  gradient_checkpointing auto " +
		"takes full"
	if !errors.Is(err, ErrSlowPath) || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "; cost: not measured; remedy: a smaller training.batch_size") {
		t.Errorf("planned with %v, want %s", err, want)
	}
	s.VRAM = fmt.Sprint(lean.TotalBytes)
	if _, err := Start(t.Context(), s, twoWorkers); !errors.Is(err, ErrSlowPath) {
		t.Errorf("a run that leaves a fast path: %v", err)
	}
	if _, err := os.Stat(s.OutputDir); err == nil {
		t.Error("the refused run made its output folder")
	}
	s.Training.Strict = false
	r, err := PlanRun(t.Context(), s, twoWorkers)
	if err != nil || len(r.Slow) != 1 || !strings.Contains(r.String(),
		"\n  slow path: gradient_checkpointing auto takes full") {
		t.Errorf("without strict: %v, %v", r, err)
	}
	s.Training.Strict, s.VRAM = true, ""
	mustStart(t, s, twoWorkers)
}

// TestStrictNamesEachSlowPath: of a layout, each with its cost where it was measured, and a remedy.
func TestStrictNamesEachSlowPath(t *testing.T) {
	all := graph.KeepAll
	for name, c := range map[string]struct {
		layout, fastest session.Layout
		want            []string
	}{
		"the fastest": {session.Layout{Dequantised: true}, session.Layout{Dequantised: true}, nil},
		"packed": {session.Layout{}, session.Layout{Dequantised: true},
			[]string{"the quantised weights stay packed, as"}},
		"packed in part": {session.Layout{Dequantised: true, Linears: 3}, session.Layout{Dequantised: true},
			[]string{"behind the first 3 linear layers stay packed"}},
		"norms recomputed": {session.Layout{Recompute: graph.RecomputeCheap, Layers: 2}, session.Layout{Recompute: all},
			[]string{"auto takes selective in the first 2 layers"}},
		"offload, slices, few rows": {session.Layout{Recompute: graph.Offload, LossRows: 32, Shards: 2},
			session.Layout{Dequantised: true},
			[]string{"stay packed", "auto takes offload", "for 32 rows at a time", "base_sharding auto"}},
		"what was asked for": {session.Layout{Recompute: graph.Offload}, session.Layout{Recompute: graph.Offload}, nil},
	} {
		for _, measured := range []bool{true, false} {
			got := slowLayout(c.layout, c.fastest, DefaultSpec().Training, measured)
			if len(got) != len(c.want) {
				t.Fatalf("%s: %v", name, got)
			}
			for i, s := range got {
				known := strings.Contains(s.Cost, "H200, docs/internals/decisions/") ||
					strings.Contains(s.Cost, "H200s, docs/internals/decisions/")
				if !strings.Contains(s.What, c.want[i]) || s.Remedy == "" ||
					known == (s.Cost == "not measured") || !measured && known {
					t.Errorf("%s: %v, want %s", name, s, c.want[i])
				}
			}
		}
	}
}
