//go:build gpu

package graph_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
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
