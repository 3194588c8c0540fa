package graph_test

import (
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model/families"
)

// TestExpertUpdatesAreTakenAlong: in a GPU's plan each projection of the experts is one call with its update, forward
// and backward, however large a sum is; what it computes is TestExpertSteps' part.
func TestExpertUpdatesAreTakenAlong(t *testing.T) {
	c, err := families.ParseConfig([]byte(`{"model_type": "qwen3_moe", "hidden_size": 128, "intermediate_size": 136, "num_hidden_layers": 2, "num_attention_heads": 4,
		"num_key_value_heads": 2, "vocab_size": 160, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false, "hidden_act": "silu",
		"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 112, "head_dim": 24}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"lora", "qlora"} {
		layers, parameters := adapter.Default(), adapter.Default()
		layers.TargetModules = adapter.Targets{adapter.AllLinear}
		parameters.TargetModules, parameters.TargetParameters = adapter.Targets{"q_proj"},
			[]string{"experts.gate_up_proj", "experts.down_proj"}
		for what, trained := range map[string]struct {
			lora adapter.Config
			// two layers of three projections, forward; a sum with an update for each of them, or for gate and up
			// together, backward
			want int
		}{"layers": {layers, 12}, "parameters": {parameters, 10}} {
			for _, policy := range []graph.Recompute{graph.KeepAll, graph.RecomputeCheap} {
				s := newStep(t, graph.NewRehearsal(2), c, method, trained.lora, layout{policy: policy})
				if n := graph.CallsNamed(s.plan, "expert_update"); n != trained.want {
					t.Errorf("%s, adapters of %s, recompute %v: %d updates are taken along, want %d", method, what,
						policy, n, trained.want)
				}
				s = newStep(t, graph.NewCPU(2), c, method, trained.lora, layout{policy: policy})
				if n := graph.CallsNamed(s.plan, "expert_update"); n != 0 {
					t.Errorf("%s, adapters of %s, recompute %v: the CPU's plan has %d", method, what, policy, n)
				}
			}
		}
	}
}
