package infer

import (
	"math"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// TestEngineRouters: one of several adapters may be of routers and shared experts, as PEFT saves them under
// transformers 5: a sequence has PEFT's loss with it, and the base model's without. One of experts is refused.
func TestEngineRouters(t *testing.T) {
	var m struct {
		Rows     [][]int32 `json:"rows"`
		Adapters map[string]struct {
			Base float64            `json:"base"`
			PEFT map[string]float64 `json:"peft"`
		} `json:"adapters"`
	}
	golden.JSON(t, golden.Path(t, "mixtures_in_peft/numbers.json"), &m)
	for name, model := range map[string]golden.FamilyModel{
		"peft_router":        {Folder: "experts", Name: "qwen3_moe"},
		"peft_shared_expert": {Folder: "shared_experts", Name: "qwen2_moe"},
		"peft_qwen3_5_moe":   {Folder: "linear_experts", Name: "qwen3_5_moe_text"},
	} {
		dir := golden.Path(t, "mixtures_in_peft/"+name)
		e := engine(t, model.Dir(t), EngineOptions{Slots: 1, MaxLen: 32, Adapters: []NamedAdapter{{"a", dir},
			{"b", dir}}, Score: true})
		for which, want := range map[string]float64{"": m.Adapters[name].Base, "b": m.Adapters[name].PEFT["5.17.0"]} {
			sum, count := 0.0, 0
			for _, ids := range m.Rows {
				if err := e.Start(0, which, Prompt{IDs: ids}, GenerateOptions{MaxTokens: 1, Logprobs: true,
					PromptLogprobs: true}); err != nil {
					t.Fatal(err)
				}
				for e.Busy() {
					tokens, err := e.Step(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					for _, token := range tokens {
						for _, p := range token.Prompt {
							sum, count = sum-p.Logprob, count+1
						}
					}
				}
			}
			if got := sum / float64(count); !(math.Abs(got-want) <= 1e-5*want) {
				t.Errorf("%s, adapter %q: mean NLL %.7f, want %.7f", name, which, got, want)
			}
		}
	}
	model := golden.FamilyModel{Folder: "experts", Name: "qwen3_moe"}.Dir(t)
	experts := NamedAdapter{"a", golden.Path(t, "mixtures_in_peft/peft_all_linear")}
	_, err := NewEngine(t.Context(), session.Options{Model: model, Device: "cpu"}, EngineOptions{Slots: 1, MaxLen: 32,
		Adapters: []NamedAdapter{experts}}, session.Env{})
	if err == nil || !strings.Contains(err.Error(), "of experts: such an adapter can't be one of several") {
		t.Errorf("an adapter of experts as one of several: %v", err)
	}
}
