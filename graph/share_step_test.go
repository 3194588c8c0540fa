package graph_test

import (
	"math"
	"sync"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model"
)

// TestSharedStepIsTheWhole: the gradients and losses of ranks that have a part of the tokens each add up to those of
// one with all of them, in every family and layout, with the passes of a CPU and of a GPU: in float64, where the order
// of a sum is far below the bound. Key heads that two ranks read are among it.
func TestSharedStepIsTheWhole(t *testing.T) {
	kept := map[string]*step{}
	stepCases(t, stepFamilies, func(name string, c model.Config, method string, lora adapter.Config, l layout) {
		if method == "qlora" || len(lora.TargetModules) < 4 || l.reuse > 0 || l.layers > 0 || c.ModelType != "llama" &&
			l.policy != graph.KeepAll && l.policy != graph.RecomputeLayers {
			return
		}
		if l == (layout{}) {
			whole := newStep(t, graph.NewCPU(1), c, method, lora, l)
			whole.gradients(t, c.VocabSize)
			kept[c.ModelType] = whole
		}
		whole := kept[c.ModelType]
		for _, share := range []int{2, 4} {
			l.share = share
			for _, gpu := range []bool{false, true} {
				if share == 4 && (l.policy != graph.KeepAll || gpu && c.ModelType != "llama") {
					continue
				}
				sums := map[string][]float64{}
				var mu sync.Mutex
				onRanks(t, share, func(rank int, on *graph.CPU) {
					machine := graph.Machine(on)
					if gpu {
						machine = graph.Rehearsal{CPU: on}
					}
					s := newStep(t, machine, c, method, lora, l)
					s.from = rank * stepTokens / share
					s.gradients(t, c.VocabSize)
					mu.Lock()
					defer mu.Unlock()
					for _, x := range s.summed() {
						if sums[x] == nil {
							sums[x] = make([]float64, len(s.numbers(t, x)))
						}
						for i, v := range s.numbers(t, x) {
							sums[x][i] += v
						}
					}
				})
				for _, x := range whole.summed() {
					var d, n float64
					for i, w := range whole.numbers(t, x) {
						d, n = d+(sums[x][i]-w)*(sums[x][i]-w), n+w*w
					}
					if !(d <= 1e-22*n) || n == 0 {
						t.Errorf("%s, %d ranks, with a GPU's passes %v: %s differs by %.3g of its norm %.3g", name,
							share, gpu, x, math.Sqrt(d/n), math.Sqrt(n))
					}
				}
			}
		}
	})
}

// gradients fills the inputs and runs forward and backward.
func (s *step) gradients(t *testing.T, vocab int) {
	t.Helper()
	s.fill(t, vocab)
	if err := s.run.Run("begin", "micro"); err != nil {
		t.Fatal(err)
	}
}

// summed returns the loss and the gradients.
func (s *step) summed() []string {
	names := []string{"loss"}
	for _, p := range s.params {
		names = append(names, "gradient of "+p)
	}
	return names
}
