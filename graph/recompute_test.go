package graph_test

import (
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
)

// TestRotationsRecomputed: the rotation of a norm that is recomputed is recomputed with it; that of a GEMM's result,
// which would have to be kept in its place, is not.
func TestRotationsRecomputed(t *testing.T) {
	stepCases(t, []string{"llama", "qwen3"}, func(name string, c model.Config, method string, lora adapter.Config,
		l layout) {
		if l != (layout{policy: graph.RecomputeCheap}) {
			return
		}
		plan := planStep(t, graph.NewCPU(2), kernel.F32, c, method, lora, l).plan
		rotations, want := 0, 0
		for line := range strings.Lines(plan.String()) {
			if strings.Contains(line, "recomputed") && strings.Contains(line, "rope") {
				rotations++
			}
		}
		if c.QKNorm {
			want = 2 * c.NumLayers
		}
		if rotations != want {
			t.Errorf("%s: %d rotations recomputed, want %d\n%v", name, rotations, want, plan)
		}
	})
}
