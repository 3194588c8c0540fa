package graph_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
)

// TestBudgetsShareMemory: a step for fewer tokens, in the memory of the larger one alone, computes what the larger one
// does with padding in place of the missing row; on a CPU, and with a GPU's merged and grouped calls, with each
// recompute policy. A step that runs one's micro-batch and then the other's adds both up.
func TestBudgetsShareMemory(t *testing.T) {
	const less = stepTokens * (stepRows - 1) / stepRows
	host := graph.NewCPU(2)
	for _, on := range []graph.Machine{host, graph.NewRehearsal(2)} {
		stepCases(t, stepFamilies, func(name string, c model.Config, method string, lora adapter.Config, l layout) {
			// masks depend on a token's place, and on nothing else
			if lora.Dropout > 0 || on == graph.Machine(host) && l != (layout{}) {
				return
			}
			// sharing depends on the policy and on the kinds of calls
			if c.ModelType != "llama" && c.ModelType != "qwen2" && l.reuse+l.layers > 0 {
				return
			}
			large, small := planStep(t, on, kernel.F64, c, method, lora, l),
				planStepOf(t, less, on, kernel.F64, c, method, lora, l)
			store, err := on.NewStore(large.plan, small.plan)
			if err != nil {
				t.Fatal(err)
			}
			alone, _ := graph.Need(large.plan)
			if got := store.Bytes().Total(); got != alone.Total() {
				t.Fatalf("%s: both hold %d bytes, the large one alone %d", name, got, alone.Total())
			}
			steps := []*step{large, small}
			for _, s := range steps {
				s.store = store
				if s.run, err = on.Bind(s.plan, store); err != nil {
					t.Fatal(err)
				}
			}
			tensor := func(name string) kernel.Tensor {
				x, err := store.Tensor(name)
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
			var want *sums
			for _, order := range [][]*step{{large, large}, {large, small}, {small, small}} {
				large.fill(t, c.VocabSize)
				for i := less; i < stepTokens; i++ { // this row is padding
					tensor("labels").I32()[i] = -100
				}
				for i, s := range order {
					tensor("cu_seqlens").I32()[stepRows] = stepTokens
					if s == small {
						tensor("cu_seqlens").I32()[stepRows] = less
					}
					segments := [][]string{{"begin", "micro"}, {"micro", "norm", "update"}}[i]
					if err := s.run.Run(segments...); err != nil {
						t.Fatal(err)
					}
				}
				got := &sums{}
				for _, p := range large.params {
					got.add(large.numbers(t, "gradient of "+p), large.numbers(t, p))
				}
				got.add(large.numbers(t, "loss"), large.numbers(t, "gradient norm"))
				if want == nil {
					want = got
				}
				if d := got.distance(want); !(d <= 1e-9) {
					t.Errorf("%T, %s: it differs by %.3g", on, name, d)
				}
			}
		})
	}
}

// sums are vectors that are compared one by one.
type sums [][]float64

func (s *sums) add(v ...[]float64) { *s = append(*s, v...) }

// distance returns the largest relative difference of a vector.
func (s *sums) distance(want *sums) float64 {
	worst := 0.0
	for i, v := range *s {
		var d, n float64
		for j, x := range (*want)[i] {
			d, n = d+(v[j]-x)*(v[j]-x), n+x*x
		}
		worst = max(worst, math.Sqrt(d/n))
	}
	return worst
}
