package kernel_test

import (
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestPositionsByLength(t *testing.T) {
	k := kernel.PositionsByLength{Limit: 3, Offset: 100}
	positions := []int32{0, 1, 2, 0, 1, 2, 3, 0, 1, 7}
	for _, c := range []struct {
		name     string
		cu, want []int32
	}{
		{"two short, one long", []int32{0, 3, 7, 9}, []int32{0, 1, 2, 100, 101, 102, 103, 0, 1, 7}},
		{"none", []int32{0}, positions},
		{"empty ones between", []int32{0, 0, 4, 4, 8, 8}, []int32{100, 101, 102, 100, 101, 102, 103, 100, 1, 7}},
		{"after the first rows", []int32{5, 9}, []int32{0, 1, 2, 0, 1, 102, 103, 100, 101, 7}},
		{"bounds that are none", []int32{math.MinInt32, math.MaxInt32}, []int32{100, 101, 102, 100, 101, 102, 103, 100, 101, 107}},
	} {
		kerneltest.Run(t, kerneltest.Case{Name: c.name, Kernel: k, In: []kerneltest.Input{kerneltest.Ints(positions, len(positions)), kerneltest.Ints(c.cu, len(c.cu))}})
		if got := evaluate(t, k, i32s(positions), i32s(c.cu))[0].I32(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
