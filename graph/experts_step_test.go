package graph_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model/families"
)

// TestExpertSteps: what a step with mixtures of experts computes is the same whatever is recomputed, as a GPU's plan
// merges it, and where ranks hold slices of the experts.
func TestExpertSteps(t *testing.T) {
	for kind, more := range map[string]string{
		"gpt_oss mxfp4":           `"num_local_experts": 5, "sliding_window": 9, "quantization_config": {"quant_method": "mxfp4"}`,
		"gpt_oss":                 `"num_local_experts": 5, "sliding_window": 9, "head_dim": 24, "output_router_logits": true`,
		"mixtral":                 `"num_local_experts": 5, "sliding_window": 9, "output_router_logits": true, "router_aux_loss_coef": 0.1`,
		"qwen3_moe":               `"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "head_dim": 24, "decoder_sparse_step": 2`,
		"mixtral by parameters":   `"num_local_experts": 5, "output_router_logits": true`,
		"qwen3_moe by parameters": `"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "head_dim": 24`,
	} {
		family, inner := kind, 40
		if strings.HasSuffix(kind, " mxfp4") {
			family, inner = "gpt_oss", 64
		}
		family, parameters := strings.CutSuffix(family, " by parameters")
		c, err := families.ParseConfig(fmt.Appendf(nil, `{"model_type": %q, "hidden_size": 64, "intermediate_size": %d, "num_hidden_layers": 3, "num_attention_heads": 4,
			"num_key_value_heads": 2, "vocab_size": 160, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false, "hidden_act": "silu", %s}`, family, inner, more))
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"lora", "qlora"} {
			lora := adapter.Default()
			lora.TargetModules, lora.Dropout = adapter.Targets{adapter.AllLinear}, 0.1
			if kind == "gpt_oss" || parameters {
				lora.TargetParameters, lora.Dropout = []string{"experts.gate_up_proj",
					"layers.1.mlp.experts.down_proj"}, 0
			}
			kept := newStep(t, graph.NewCPU(2), c, method, lora, layout{})
			kept.once(t, c.VocabSize)
			onRanks(t, 2, func(_ int, on *graph.CPU) {
				s := newStep(t, on, c, method, lora, layout{policy: graph.RecomputeLayers, ranks: 2})
				s.once(t, c.VocabSize)
				if d := s.differs(t, kept); d != "" {
					t.Errorf("%s, %s, in slices: %s", kind, method, d)
				}
			})
			for _, policy := range []graph.Recompute{graph.KeepAll, graph.RecomputeCheap, graph.KeepAttention,
				graph.RecomputeLayers, graph.OffloadAttention, graph.Offload} {
				for name, on := range map[string]graph.Machine{"host": graph.NewCPU(2),
					"rehearsal": graph.NewRehearsal(2)} {
					s := newStep(t, on, c, method, lora, layout{policy: policy})
					s.once(t, c.VocabSize)
					if d := s.differs(t, kept); d != "" {
						t.Errorf("%s, %s, %s, recompute %v: %s", kind, method, name, policy, d)
					}
				}
			}
		}
	}
}
