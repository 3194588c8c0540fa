package graph_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/train/ranks"
)

// seat is one of the ranks of a process as a machine joins them.
type seat struct{ ranks.Group }

func (s seat) Gather(what string, mine []byte) ([][]byte, error) {
	return s.Group.Gather(context.Background(), what, mine)
}

// onRanks runs something on as many machines, which have joined one another.
func onRanks(t *testing.T, world int, run func(rank int, on *graph.CPU)) {
	t.Helper()
	var all sync.WaitGroup
	for r, g := range ranks.NewLocal(world) {
		all.Go(func() {
			on := graph.NewCPU(1)
			defer on.Close() //nolint:errcheck // threads
			if err := on.Join(seat{g}); err != nil {
				t.Error(err)
			}
			run(r, on)
		})
	}
	all.Wait()
}

// TestShardedStepEqualsWhole: a step whose ranks have a slice of the frozen values each gives the bits of one that has
// them whole, in every layout, and each rank holds a slice of what the whole takes.
func TestShardedStepEqualsWhole(t *testing.T) {
	kept := map[string]*step{}
	stepCases(t, []string{"llama", "gemma2", "phi3"}, func(name string, c model.Config, method string,
		lora adapter.Config, l layout) {
		if lora.Dropout > 0 || l.reuse > 0 || l.layers > 0 || c.ModelType != "llama" && l.policy != graph.KeepAll &&
			l.policy != graph.RecomputeLayers {
			return
		}
		key := fmt.Sprint(c.ModelType, method, lora.TargetModules)
		if l == (layout{}) {
			kept[key] = newStep(t, graph.NewCPU(1), c, method, lora, l)
			kept[key].once(t, c.VocabSize)
		}
		whole := kept[key]
		l.ranks = 2 + len(name)%3
		onRanks(t, l.ranks, func(rank int, on *graph.CPU) {
			s := newStep(t, on, c, method, lora, l)
			s.once(t, c.VocabSize)
			for _, x := range append([]string{"loss", "gradient norm"}, s.params...) {
				if !slices.Equal(s.numbers(t, x), whole.numbers(t, x)) {
					t.Errorf("%s: rank %d of %d has another %s", name, rank, l.ranks, x)
				}
			}
			held, all := s.store.Bytes().Frozen, whole.store.Bytes().Frozen
			if need, err := graph.Need(s.plan); err != nil || need.Frozen != held || held > all/int64(l.ranks)+all/8 {
				t.Errorf("%s: rank %d of %d holds %d bytes of %d frozen ones, the plan says %d: %v", name, rank,
					l.ranks, held, all, need.Frozen, err)
			}
		})
	})
}

// TestShardGathersAhead: a layer is gathered for the forward pass and again for the backward pass. Where the loss and
// no more than another layer lie between, it stays, unless the head is larger than two layers; a small head is whole on
// every rank. Who is alone gathers nothing.
func TestShardGathersAhead(t *testing.T) {
	layers := func(numbers ...int) (names []string) {
		for _, n := range numbers {
			names = append(names, fmt.Sprint("model.layers.", n))
		}
		return names
	}
	head := []string{"lm_head.weight"} // of a vocabulary of 160: large enough in f64
	wants := map[string][]string{
		"lora f32":  layers(0, 1, 2, 0),
		"qlora f32": layers(0, 1, 2, 0),
		"lora f64":  slices.Concat([]string{"model.embed_tokens.weight"}, layers(0, 1, 2), head, layers(1, 0)),
		"qlora f64": slices.Concat([]string{"model.embed_tokens.weight"}, layers(0, 1, 2), head, layers(2, 1, 0)),
	}
	stepCases(t, []string{"llama"}, func(name string, c model.Config, method string, lora adapter.Config, l layout) {
		for _, float := range []kernel.DType{kernel.F32, kernel.F64} {
			want := wants[fmt.Sprint(method, " ", float)]
			l.ranks = 2
			plan := planStep(t, graph.NewCPU(1), float, c, method, lora, l).plan
			var order []string
			for line := range strings.Lines(plan.String()) {
				if f := strings.Fields(line); strings.Contains(line, "allgather") {
					order = append(order, strings.TrimSuffix(f[2], ":"))
				}
			}
			if !slices.Equal(order, want) {
				t.Errorf("%s: gathers %v, want %v", name, order, want)
			}
			g := plan.Gathered("micro")
			if g.Ranks != 2 || g.Gathers != len(order) {
				t.Errorf("%s: %+v", name, g)
			}
			l.ranks = 1
			if g := planStep(t, graph.NewCPU(1), float, c, method, lora,
				l).plan.Gathered("micro"); g != (graph.Gathered{}) {
				t.Errorf("%s: alone: %+v", name, g)
			}
		}
	})
}
