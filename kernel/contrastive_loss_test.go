package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// contrastInputs are vectors of two pairs, a hard negative, an anchor whose target is no candidate, and a sequence that
// does not count.
func contrastInputs(o kernel.ContrastiveLoss, C int) []kerneltest.Input {
	const candidate, none = kernel.ContrastCandidate, kernel.Untrained
	targets := []int32{1, candidate, candidate, none, 5, candidate, 0, 99}
	in := []kerneltest.Input{kerneltest.Normal(len(targets), C), kerneltest.Ints(targets, len(targets)),
		kerneltest.Values([]float64{0.5}, 1)}
	if o.Scaled {
		in = append(in, kerneltest.Values([]float64{1, 0, 0}, 3))
	}
	return in
}

func TestContrastiveLoss(t *testing.T) {
	for _, C := range []int{1, 3, 300} {
		for i := range 8 {
			o := kernel.ContrastiveLoss{Temperature: 0.7, Dot: i&1 > 0, Grad: i&2 > 0, Scaled: i&4 > 0}
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%+v, %d columns", o, C), Kernel: o,
				In: contrastInputs(o, C), Bound: 2e-6})
		}
	}
}

// TestContrastiveLossMeaning checks losses and sums by hand: of two anchors one is nearer to the other's candidate, and
// a vector without a direction is as far from all.
func TestContrastiveLossMeaning(t *testing.T) {
	const candidate = kernel.ContrastCandidate
	vectors := f64s([]float64{3, 0, 0, 2, 1, 0, 0, 0}, 4, 2)
	one := f64s([]float64{1}, 1)
	targets := i32s([]int32{1, candidate, candidate, 2})
	out := evaluate(t, kernel.ContrastiveLoss{Temperature: 0.5}, vectors, targets, one)
	near(t, "loss", out[0].F64(), []float64{math.Log(1+math.Exp(2)) + math.Ln2}, 1e-15)
	near(t, "sums", []float64{out[1].F64()[0], out[2].F64()[0], out[3].F64()[0]}, []float64{1, 0, 1}, 1e-15)

	out = evaluate(t, kernel.ContrastiveLoss{Temperature: 2, Dot: true}, vectors,
		i32s([]int32{2, candidate, candidate, -7}), one)
	near(t, "loss of dot products", out[0].F64(), []float64{math.Log(1 + math.Exp(-1.5))}, 1e-15)

	for _, temperature := range []float64{0, -1, math.Inf(1), math.NaN()} {
		_, err := kernel.ContrastiveLoss{Temperature: temperature}.Shape([]kernel.Type{kernel.T(kernel.F32, 4, 2),
			kernel.T(kernel.I32, 4), kernel.T(kernel.F32, 1)})
		if err == nil {
			t.Errorf("temperature %v: accepted", temperature)
		}
	}
}
