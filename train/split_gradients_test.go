package train

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/train/gradcheck"
	"github.com/tierlora/tierlora/train/step"
)

// TestSplitGradients: a step whose batches are dealt in pieces has the loss and the gradients of the whole one, in
// float64 to its rounding, with batches accumulated and with packed rows too.
func TestSplitGradients(t *testing.T) {
	t.Parallel()
	for _, packing := range []bool{false, true} {
		s := testSpec(t, 4)
		s.Adapter, s.Quantization, s.Training.BatchSize, s.Dataset.Packing = "lora", nil, 4, packing
		compute := func(pieces int) (gradcheck.Gradients, int) {
			p, err := prepare(context.Background(), s, twoWorkers)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			z, err := p.Split(pieces)
			if err != nil {
				t.Fatal(err)
			}
			batches, trained, err := p.loader.NextWindow(2)
			if err != nil {
				t.Fatal(err)
			}
			n := len(batches)
			c := gradcheck.Computation{
				Session: p.Session, Step: s.Step(), Shape: z.Train, Seed: s.Seed,
				Window: step.Window{Number: 1, Batches: batches, Trained: trained, Sequences: n, Groups: n, LR: 1e-3},
			}
			g, err := c.Gradients(context.Background(), graph.NewCPU(2), kernel.F64)
			if err != nil {
				t.Fatal(err)
			}
			return g, n
		}
		whole, n := compute(1)
		if n != 2 {
			t.Fatalf("%d batches", n)
		}
		for _, pieces := range []int{2, 4} {
			split, n := compute(pieces)
			if n <= 2 || n > 2*pieces {
				t.Errorf("%d pieces: %d micro-batches", pieces, n)
			}
			if d := math.Abs(split.Loss-whole.Loss) / whole.Loss; !(d < 1e-13) {
				t.Errorf("packing %v, %d pieces: the loss is off by %.3g of it", packing, pieces, d)
			}
			if !slices.Equal(split.Names, whole.Names) {
				t.Fatal("other tensors")
			}
			worst := 0.0
			for i := range whole.Of {
				worst = max(worst, distance(split.Of[i], whole.Of[i]))
			}
			if !(worst < 1e-11) {
				t.Errorf("packing %v, %d pieces: a gradient is off by %.3g of its norm", packing, pieces, worst)
			}
			t.Logf("packing %v, %d pieces: loss %v and %v, gradients within %.2g", packing, pieces,
				whole.Loss, split.Loss, worst)
		}
	}
}
