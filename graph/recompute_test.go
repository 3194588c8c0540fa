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

// TestAttentionIsKept: modes that keep the outputs of attention apply it once in each layer. OffloadAttention copies
// them to host memory in all layers but the last, and back before the backward pass of their layer begins.
func TestAttentionIsKept(t *testing.T) {
	for mode, want := range map[graph.Recompute][3]int{graph.RecomputeLayers: {6}, graph.KeepAttention: {3},
		graph.Offload: {6}, graph.OffloadAttention: {3, 2, 2}} {
		stepCases(t, []string{"llama"}, func(name string, c model.Config, method string, lora adapter.Config,
			l layout) {
			if l != (layout{}) || method != "lora" || lora.Dropout > 0 || len(lora.TargetModules) < 5 {
				return
			}
			plan := planStep(t, graph.NewCPU(2), kernel.F64, c, method, lora, layout{policy: mode}).plan.String()
			var got [3]int
			for line := range strings.Lines(plan) {
				switch _, call, _ := strings.Cut(line, "self_attn: "); {
				case strings.HasPrefix(call, "attention "):
					got[0]++
				case strings.HasPrefix(call, "offload "):
					got[1]++
				case strings.HasPrefix(call, "prefetch "):
					got[2]++
				}
			}
			if got != want {
				t.Errorf("%v, %s: %v calls of attention, copies to the host and back, want %v\n%s", mode, name, got,
					want, plan)
			}
		})
	}
}
