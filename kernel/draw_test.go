package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// TestDraw checks drawn places against running sums worked out by hand, zero weights, and rows that are not finite.
func TestDraw(t *testing.T) {
	ln := math.Log
	low := -1e30 // weight 0
	x := f64s([]float64{
		ln(1), ln(2), ln(5), low, // weights 1, 2 and 5 of 8
		ln(1), ln(2), ln(5), low,
		ln(1), ln(2), ln(5), low,
		low, ln(4), low, ln(4),
		low, ln(4), low, ln(4),
		0, math.NaN(), math.Inf(1), 0,
		ln(1), ln(2), ln(4), low, // temperature 1/2: weights 1, 4 and 16
	}, 7, 4)
	draws := f64s([]float64{0, 1, 0.125, 1, 0.999999, 1, 0, 1, 0.5, 1, 0.5, 1, 0.9 / 21, 2}, 7, 2)
	out := evaluate(t, kernel.Draw{}, x, draws)
	want := []int32{0, 1, 2, 1, 3, -2, 0}
	for m, place := range out[0].I32() {
		if place != want[m] {
			t.Errorf("row %d: place %d, want %d", m, place, want[m])
		}
	}
	for m, p := range []float64{1. / 8, 2. / 8, 5. / 8, 0.5, 0.5, math.NaN(), 1. / 21} {
		if got := math.Exp(out[1].F64()[m]); !(math.Abs(got-p) < 1e-12) && p == p {
			t.Errorf("row %d: probability %v, want %v", m, got, p)
		}
	}
	if l := out[1].F64()[5]; l == l {
		t.Errorf("the log-probability of a row that is not finite is %v", l)
	}
}

// TestDrawFollowsTheSoftmax draws at evenly spaced shares, which hit each place in proportion to its probability.
func TestDrawFollowsTheSoftmax(t *testing.T) {
	const M, N = 4000, 7
	var x, draws []float32
	logits := []float32{0.5, -1, 2, 0, 1.5, -3, 0.25}
	for m := range M {
		x, draws = append(x, logits...), append(draws, (float32(m)+0.5)/M, 1)
	}
	counts := make([]float64, N)
	out := evaluate(t, kernel.Draw{}, f32s(x, M, N), f32s(draws, M, 2))
	for m, place := range out[0].I32() {
		counts[place]++
		if l := out[1].F32()[m]; l != out[1].F32()[m] || l > 0 {
			t.Fatalf("row %d: log-probability %v", m, l)
		}
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	for i, l := range logits {
		if want := M * math.Exp(float64(l)) / sum; math.Abs(counts[i]-want) > 1.5 {
			t.Errorf("place %d was drawn %v times, want %.1f", i, counts[i], want)
		}
	}
}
