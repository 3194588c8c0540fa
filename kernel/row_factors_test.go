package kernel_test

import (
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestRowFactors(t *testing.T) {
	kerneltest.Run(t,
		kerneltest.Case{Kernel: kernel.RowFactors{}, In: []kerneltest.Input{kerneltest.Normal(5, 13), kerneltest.Ints([]int32{0, 2, -1, 1, 9}, 5), kerneltest.Normal(3, 13)}, Bound: 2e-7},
		kerneltest.Case{Name: "one row", Kernel: kernel.RowFactors{}, In: []kerneltest.Input{kerneltest.Normal(1, 600), kerneltest.Ints([]int32{0}, 1), kerneltest.Normal(1, 600)}, Bound: 2e-7},
	)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	got := evaluate(t, kernel.RowFactors{}, f32s([]float32{1, nan, 3, nan, 2, inf, 1, 2, 3, nan, inf, 1}, 4, 3), tensorOf([]int32{0, 1, 2, -1}), f32s([]float32{2, 0, 2, 0, -3, 0}, 2, 3))[0].F32()
	if want := []float32{2, 0, 6, 0, -6, 0, 0, 0, 0, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v: numbers of other adapters must not cross", got, want)
	}
}
