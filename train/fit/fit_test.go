package fit

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// rows is Batches of four rows of 100 tokens.
type rows struct{ pieces int }

func (r *rows) Shapes() Shapes { z, _ := r.Fewer(4 / r.pieces); return z }
func (r *rows) Shape() dataset.Shape {
	return dataset.Shape{Sequences: 4 / r.pieces, T: 100, Budgets: []int{400 / r.pieces}}
}
func (r *rows) Split(pieces int) (Shapes, error) { r.pieces = pieces; return r.Shapes(), nil }
func (r *rows) Fewer(n int) (Shapes, error) {
	return Shapes{Train: session.Shape{Tokens: 100 * n, Sequences: n, MaxLen: 100}, Several: n < 4}, nil
}
func (r *rows) Trains(length int) bool { return length > 20 }
func (r *rows) ChooseBudgets(int)      {}
func (r *rows) Efficiency(int) float64 { return 1 }

// problem is a step whose activations take 10 bytes a token where all are kept, 5 with cheap ones recomputed and 1
// with whole layers recomputed, and whose weights take 100 bytes: in all 4100, 2100 and 500 as configured.
func problem(limit int64) Problem[Attempt] {
	keys := Keys{Checkpointing: "auto", Dequantised: "never", Sharding: "auto"}
	r := &rows{1}
	return Problem[Attempt]{
		Shapes: r.Shapes(), Limit: limit, Checkpointing: "auto", OnOOM: OnOOMStop, BatchSize: 4, Accumulation: 1,
		Optimizer: "lion",
		Sharing:   1, Ranks: 1, Layers: 1, FixedLossRows: true, Machine: graph.NewCPU(1), Batches: r,
		Free:  func() (int64, bool, error) { return 0, false, nil },
		Calls: func(Attempt) int { return 1 },
		Layouts: func(checkpointing string) []session.Layout {
			keys.Checkpointing = checkpointing
			return keys.Layouts(graph.Capabilities{}, false, 1)
		},
		Try: func(a Attempt) (p session.Planned[Attempt], err error) {
			each := map[graph.Recompute]int64{graph.KeepAll: 10, graph.RecomputeCheap: 5,
				graph.RecomputeLayers: 1}[a.Layout.Recompute]
			p.Layout, p.Step = a.Layout, a
			p.Need = graph.Bytes{Frozen: 100, Arena: each * int64(a.Shapes.Train.Tokens)}
			return p, nil
		},
	}
}

// TestSolve: the first layout that fits is taken; none fits below the bytes of the leanest, and the error says what
// would.
func TestSolve(t *testing.T) {
	for _, c := range []struct {
		limit int64
		want  string
	}{
		{-1, "none"}, {4100, "none"}, {4099, "selective"}, {2099, "full"}, {500, "full"},
		{499, "training.batch_size: 2 would fit, in 300 B (with gradient_accumulation_steps: 2"},
		{299, "training.batch_size: 1 would fit"},
		{199, "dataset.max_length: 50 and training.batch_size: 1 would fit"},
		{124, "no batch is small enough: weights, adapter and optimizer alone take 100 B"},
		{0, "other programs hold the memory of cpu"},
	} {
		chosen, err := problem(c.limit).Solve()
		got := chosen.Layout.Recompute.String()
		if err != nil {
			got = err.Error()
			if !errors.Is(err, session.ErrDoesNotFit) {
				t.Errorf("limit %d: %v", c.limit, err)
			}
		}
		if !strings.Contains(got, c.want) || err == nil && (got != c.want || !chosen.Fits) {
			t.Errorf("limit %d: %s, want %s", c.limit, got, c.want)
		}
	}
}

// TestSolveNamesOtherLosses checks the advice for an objective whose loss smaller micro-batches change.
func TestSolveNamesOtherLosses(t *testing.T) {
	p := problem(499)
	p.BatchTerm = "the negatives of an anchor are texts"
	_, err := p.Solve()
	const want = "training.batch_size: 2 would fit, in 300 B (with another loss: the negatives of an anchor are " +
		"texts of each micro-batch)"
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "on_oom") {
		t.Errorf("refused with %v, want %s", err, want)
	}
}

// TestSolveShrinks: with on_oom: shrink the batches are split as far as they must be.
func TestSolveShrinks(t *testing.T) {
	for _, c := range []struct {
		limit  int64
		pieces int
	}{{500, 1}, {499, 2}, {300, 2}, {299, 4}} {
		p := problem(c.limit)
		p.OnOOM = OnOOMShrink
		chosen, err := p.Solve()
		if pieces := p.Batches.(*rows).pieces; err != nil || pieces != c.pieces ||
			(chosen.Shrunk != "") != (pieces > 1) {
			t.Errorf("limit %d: %d pieces (%q), want %d: %v", c.limit, pieces, chosen.Shrunk, c.pieces, err)
		}
	}
	p := problem(199)
	p.OnOOM = OnOOMShrink
	if _, err := p.Solve(); !errors.Is(err, session.ErrDoesNotFit) || p.Batches.(*rows).pieces != 1 {
		t.Errorf("what cannot be shrunk enough: %v, %d pieces", err, p.Batches.(*rows).pieces)
	}
}

// TestAgain: a device that refuses a plan gets a smaller one with on_oom: shrink, else the error names what would
// fit.
func TestAgain(t *testing.T) {
	cause := errors.New("the device said no")
	p := problem(-1)
	chosen, err := p.Solve()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = p.Again(chosen, cause); !errors.Is(err, session.ErrDoesNotFit) ||
		!strings.Contains(err.Error(), "the same command would fit, with gradient_checkpointing selective") {
		t.Errorf("stop: %v", err)
	}
	p.OnOOM = OnOOMShrink
	before := chosen.Need.Total()
	if chosen, err = p.Again(chosen, cause); err != nil || chosen.Need.Total() > before*7/8 ||
		!strings.Contains(chosen.Shrunk, "refused the memory of the plan (the device said no)") {
		t.Errorf("shrink: %d bytes after %d: %q, %v", chosen.Need.Total(), before, chosen.Shrunk, err)
	}
}

// TestRefuseOnAFullMachine: no smaller model helps where nothing is free.
func TestRefuseOnAFullMachine(t *testing.T) {
	c := Choice[Attempt]{}
	c.Need = graph.Bytes{Frozen: 5 << 20, Arena: 6 << 20}
	err := problem(0).refuse(c)
	if !errors.Is(err, session.ErrDoesNotFit) || !strings.Contains(err.Error(),
		"needs 11.0 MiB, the limit is 0 B: 11.0 MiB too much; other programs hold the memory of cpu") {
		t.Errorf("refused with %v", err)
	}
}

// TestSmallerSteps: what costs the least time comes first: long batches are split before layers are recomputed, short
// ones the other way round.
func TestSmallerSteps(t *testing.T) {
	modes := []graph.Recompute{graph.KeepAll, graph.RecomputeCheap, graph.RecomputeLayers}
	for _, c := range []struct {
		rows, tokens int
		want         string
	}{
		{4, 8192, "1 none, 2 none, 1 selective, 4 none, 2 selective, 4 selective, 1 full, 2 full, 4 full"},
		{4, 512, "1 none, 1 selective, 2 none, 2 selective, 1 full, 2 full, 4 none, 4 selective, 4 full"},
		{3, 300, "1 none, 1 selective, 1 full, 3 none, 3 selective, 3 full"},
		{1, 64, "1 none, 1 selective, 1 full"},
	} {
		var got []string
		for _, w := range smallerSteps(c.rows, c.tokens, modes) {
			got = append(got, fmt.Sprint(w.pieces, " ", w.mode))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%d rows of %d tokens: %s, want %s", c.rows, c.tokens, text, c.want)
		}
	}
}
