package graph_test

import (
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model"
)

// TestRehearsal: what a GPU's plan of a whole training step computes, with its merged and wider sums, is what the CPU's
// computes, with each recompute policy.
func TestRehearsal(t *testing.T) {
	stepCases(t, stepFamilies, func(name string, c model.Config, method string, lora adapter.Config, l layout) {
		host, device := newStep(t, graph.NewCPU(2), c, method, lora, l),
			newStep(t, graph.NewRehearsal(2), c, method, lora, l)
		least := 11
		switch c.ModelType {
		case "olmo2": // no norm reads the sums, but the last one
			least = 6
		// a norm of each layer's queries and keys, and of all but the first layer's keys its gradient at least
		case "qwen3":
			least += 11
		}
		if n := graph.Merged(device.plan); n < least || graph.Merged(host.plan) > 0 {
			t.Errorf("%s: %d merged calls, the test tests nothing", name, n)
		}
		host.once(t, c.VocabSize)
		device.once(t, c.VocabSize)
		if d := device.differs(t, host); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	})
}
