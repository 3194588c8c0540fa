package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestNEFTune(t *testing.T) {
	for _, width := range []int{1, 4, 7, 64} {
		in := []kerneltest.Input{kerneltest.Normal(3, width), kerneltest.Ints([]int32{0, 0, 9}, 3),
			kerneltest.Ints([]int32{0, 1, 5}, 3),
			kerneltest.Values([]float64{0.5, 0, 2}, 3), kerneltest.Ints([]int32{7, 3}, 2)}
		kerneltest.Run(t, kerneltest.Case{Name: "noise", Kernel: kernel.NEFTune{}, In: in, Bound: 2e-7})
	}
}

// TestNEFTuneMeaning: a token's noise follows its row and position wherever it lies, differs over rows, positions,
// steps and seeds, and is uniform in [-1,1).
func TestNEFTuneMeaning(t *testing.T) {
	const width = 512
	noise := func(rows, positions []int32, seed, step int32) []float64 {
		M := len(rows)
		ones := make([]float64, M)
		for i := range ones {
			ones[i] = 1
		}
		return evaluate(t, kernel.NEFTune{}, f64s(make([]float64, M*width), M, width), i32s(rows), i32s(positions),
			f64s(ones, M), i32s([]int32{seed, step}))[0].F64()
	}
	all := noise([]int32{3, 3, 4}, []int32{0, 1, 0}, 1, 2)
	near(t, "alone", noise([]int32{4}, []int32{0}, 1, 2), all[2*width:], 0)
	for what, other := range map[string][]float64{
		"position": all[width : 2*width], "row": all[2*width:], "seed": noise([]int32{3}, []int32{0}, 2, 2),
		"step": noise([]int32{3}, []int32{0}, 1, 3),
	} {
		same := 0
		for i, v := range other {
			if v == all[i] {
				same++
			}
		}
		if same > 4 {
			t.Errorf("another %s has %d equal numbers", what, same)
		}
	}
	mean, square := 0., 0.
	for _, v := range all {
		if !(v >= -1 && v < 1) {
			t.Fatalf("noise of %v", v)
		}
		mean, square = mean+v/float64(len(all)), square+v*v/float64(len(all))
	}
	if math.Abs(mean) > 0.06 || math.Abs(square-1./3) > 0.04 {
		t.Errorf("mean %v, mean square %v: want 0 and 1/3", mean, square)
	}
}
