package graph_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
)

// TestChipPlansStay: plans for GPUs that are not here.
func TestChipPlansStay(t *testing.T) {
	for _, c := range []struct {
		sm        int
		precision kernel.Precision
	}{{90, kernel.PrecisionBF16}, {80, kernel.PrecisionFP16}, {120, kernel.PrecisionFP32}} {
		on, err := graph.NewChip(graph.Chip{SM: c.sm}, 2, c.precision)
		if err != nil {
			t.Fatal(err)
		}
		plansStay(t, fmt.Sprintf("sm_%d %v", c.sm, c.precision), on)
	}
}

// TestChipsPlanEveryFamily: what a GPU stores of each kernel's values fits together in the plans of every kind of
// layer.
func TestChipsPlanEveryFamily(t *testing.T) {
	for _, p := range []kernel.Precision{kernel.PrecisionBF16, kernel.PrecisionFP16, kernel.PrecisionFP32} {
		on, err := graph.NewChip(graph.Chip{SM: 90}, 2, p)
		if err != nil {
			t.Fatal(err)
		}
		stepCases(t, stepFamilies, func(name string, c model.Config, method string, lora adapter.Config, l layout) {
			if n := len(planStep(t, on, kernel.F32, c, method, lora, l).plan.Calls()); n != 4 {
				t.Errorf("%s in %v: %d segments", name, p, n)
			}
		})
	}
}
