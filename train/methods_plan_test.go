package train

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/graph"
)

// TestMethodsPlanForGPUs: every adapter method is planned for a GPU in every precision, over floats and over 4 bits.
func TestMethodsPlanForGPUs(t *testing.T) {
	chip, err := graph.FindChip("h100")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(slices.Sorted(maps.Keys(furtherMethods)), "dora") {
		for _, method := range []string{name, "q" + name} {
			for _, precision := range []string{"bf16", "fp16", "tf32", "fp32"} {
				s := testSpec(t, 8)
				s.Device, s.Training.Precision, s.Adapter = "cuda", precision, method
				if method == name {
					s.Quantization = nil
				}
				if set := furtherMethods[name]; set != nil {
					s.LoRA = DefaultSpec().LoRA
					set(&s.Sections)
				}
				if _, err := PlanFor(context.Background(), s, Env{}, chip); err != nil {
					t.Errorf("%s in %s: %v", method, precision, err)
				}
			}
		}
	}
}
