package quant

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestNestedCodeIsNearest holds the search against the rule that the GPU's kernel follows: the nearest entry, of
// two equally near ones the even.
func TestNestedCodeIsNearest(t *testing.T) {
	table := &NestedTable
	rule := func(x float32) uint8 {
		below := 0
		for step := 128; step > 0; step /= 2 {
			if x > table[below+step-1] {
				below += step
			}
		}
		lo, hi := max(below-1, 0), min(below, 255)
		if x > table[255] {
			lo, hi = 255, 255
		}
		mid := (table[lo] + table[hi]) * 0.5
		if x > mid || x == mid && hi&1 == 0 {
			return uint8(hi)
		}
		return uint8(lo)
	}
	check := func(x float32) {
		if got, want := nestedCode(x), rule(x); got != want {
			t.Errorf("nestedCode(%v) = %d, the rule says %d", x, got, want)
		}
	}
	around := func(x float32) {
		check(x)
		check(math.Nextafter32(x, -2))
		check(math.Nextafter32(x, 2))
	}
	for i := range table {
		around(table[i])
		if i > 0 {
			around((table[i-1] + table[i]) * 0.5)
		}
	}
	for _, x := range []float32{0, float32(math.Copysign(0, -1)), 1, -1, 1.5, -1.5, 1e-30, -1e-30, float32(math.Inf(1)),
		float32(math.Inf(-1)), float32(math.NaN())} {
		check(x)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1 << 20 {
		check(float32(r.Float64()*2 - 1))
	}
}

// TestMeanOrder: the mean by threads is the plain one to the last place of float64, whatever the number of values.
func TestMeanOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 31, 32, 33, 1023, 1024, 1025, 5000, 1 << 17} {
		x, sum := make([]float32, n), 0.0
		for i := range x {
			x[i] = float32(math.Exp(4 * r.NormFloat64()))
			sum += float64(x[i])
		}
		want := sum / float64(n)
		if got := mean(x); math.Abs(float64(got)-want) > 0.5000001*float64(math.Nextafter32(got, 2*got)-got) {
			t.Errorf("mean of %d values = %v, want %v", n, got, want)
		}
	}
	if mean(nil) != 0 {
		t.Error("the mean of nothing is not 0")
	}
}
