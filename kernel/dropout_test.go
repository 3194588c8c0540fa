package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestDropout(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][2]int{{1, 1}, {3, 5}, {41, 401}} {
		for _, p := range []float64{0.05, 0.5, 0.9} {
			cases = append(cases, kerneltest.Case{
				Name: fmt.Sprintf("%v %v", s, p), Kernel: kernel.Dropout{P: p, Stream: 7}, Bound: 1e-7,
				In: []kerneltest.Input{kerneltest.Normal(s[0], s[1]), kerneltest.Ints([]int32{-42, 3}, 2)},
			})
		}
	}
	kerneltest.Run(t, cases...)
	for _, p := range []float64{0, 1, -0.1, math.NaN()} {
		if _, err := (kernel.Dropout{P: p}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 2),
			kernel.T(kernel.I32, 2)}); err == nil {
			t.Errorf("the probability %v is accepted", p)
		}
	}
}

// TestDropSlots: rows in any order have the masks of Dropout in the order of their slots, at widths of whole groups of
// four and others.
func TestDropSlots(t *testing.T) {
	for _, width := range []int{1, 3, 4, 5, 8, 30, 36, 67, 401} {
		const rows = 23
		order := make([]int32, rows)
		for r := range order {
			order[r] = int32((5*r + 3) % rows)
		}
		counter, ones := tensorOf([]int32{-42, 3}), make([]float32, rows*width)
		for i := range ones {
			ones[i] = float32(i%7 + 1)
		}
		sorted := make([]float32, len(ones))
		for r, slot := range order {
			copy(sorted[r*width:], ones[int(slot)*width:][:width])
		}
		k := kernel.Dropout{P: 0.3, Stream: 7}
		want := apply(t, k, tensor32(ones, rows, width), counter)[0].F32()
		got := apply(t, kernel.DropSlots(k), tensor32(sorted, rows, width), counter, tensorOf(order))[0].F32()
		for r, slot := range order {
			if !slices.Equal(got[r*width:][:width], want[int(slot)*width:][:width]) {
				t.Errorf("width %d: row %d, slot %d, has another mask", width, r, slot)
			}
		}
	}
	var cases []kerneltest.Case
	for _, s := range [][2]int{{1, 1}, {3, 5}, {41, 401}, {6, 64}} {
		order := make([]int32, s[0])
		for r := range order {
			order[r] = int32(s[0] - 1 - r)
		}
		cases = append(cases, kerneltest.Case{Name: fmt.Sprint(s), Kernel: kernel.DropSlots{P: 0.3, Stream: 7},
			Bound: 1e-7,
			In: []kerneltest.Input{kerneltest.Normal(s[0], s[1]), kerneltest.Ints([]int32{-42, 3}, 2),
				kerneltest.Ints(order, s[0])}})
	}
	kerneltest.Run(t, cases...)
	x, two := kernel.T(kernel.F32, 3, 2), kernel.T(kernel.I32, 2)
	for _, in := range [][]kernel.Type{{x, two}, {x, two, two}, {x, two, kernel.T(kernel.F32, 3)}} {
		if _, err := (kernel.DropSlots{P: 0.5}).Shape(in); err == nil {
			t.Errorf("%v are accepted", in)
		}
	}
}

// masked returns the result for a matrix of ones.
func masked(t *testing.T, k kernel.Dropout, n int, seed, step int32) []float32 {
	ones := make([]float32, n)
	for i := range ones {
		ones[i] = 1
	}
	return apply(t, k, tensor32(ones, 1, n), tensorOf([]int32{seed, step}))[0].F32()
}

// The share of dropped elements is P, within four standard deviations, and what is kept has the right scale.
func TestDropoutShare(t *testing.T) {
	const n = 1 << 16
	for _, p := range []float64{0.1, 0.5, 0.8} {
		dropped := 0.0
		for _, y := range masked(t, kernel.Dropout{P: p}, n, 1, 2) {
			switch y {
			case 0:
				dropped++
			case float32(1 / (1 - p)):
			default:
				t.Fatalf("an element is %v, want 0 or %v", y, 1/(1-p))
			}
		}
		if d := math.Abs(dropped - n*p); d > 4*math.Sqrt(n*p*(1-p)) {
			t.Errorf("P=%v: %v of %v are dropped", p, dropped, n)
		}
	}
}

// Seed, step and stream each give another mask, and the same three the same mask.
func TestDropoutMasksDiffer(t *testing.T) {
	base := masked(t, kernel.Dropout{P: 0.5}, 256, 1, 1)
	if !slices.Equal(base, masked(t, kernel.Dropout{P: 0.5}, 256, 1, 1)) {
		t.Error("the same counter gives another mask")
	}
	for what, other := range map[string][]float32{
		"seed":   masked(t, kernel.Dropout{P: 0.5}, 256, 2, 1),
		"step":   masked(t, kernel.Dropout{P: 0.5}, 256, 1, 2),
		"stream": masked(t, kernel.Dropout{P: 0.5, Stream: 5}, 256, 1, 1),
	} {
		same := 0
		for i := range base {
			if base[i] == other[i] {
				same++
			}
		}
		if same < 88 || same > 168 { // 128 are expected, deviation 8
			t.Errorf("another %s: %d of 256 elements are as before", what, same)
		}
	}
}
