package infer

import (
	"testing"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// TestDecodeStepsTakeOneExpertKernel: the kernel of experts' GEMMs does not change with how many sequences a step
// continues. Experts and experts a token are those of Mixtral, gpt-oss 20B and 120B, Qwen3-30B-A3B, OLMoE, Granite 3
// and Qwen1.5-MoE.
func TestDecodeStepsTakeOneExpertKernel(t *testing.T) {
	for _, m := range [][2]int{{8, 2}, {32, 4}, {128, 4}, {128, 8}, {64, 8}, {40, 8}, {60, 4}} {
		for slots := 1; slots <= MaxSlots; slots++ {
			if cuda.ExpertsByHopper(slots*m[1], 2048, 2048, m[0]) {
				t.Errorf("%d experts, %d a token: a step of %d sequences takes another kernel than one of 1",
					m[0], m[1], slots)
				break
			}
		}
	}
	if !cuda.ExpertsByHopper(512*8, 768, 2048, 128) {
		t.Error("512 tokens of Qwen3-30B-A3B do not go by wgmma")
	}
}
