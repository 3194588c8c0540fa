package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// places are where three rows go in a cache of five: side by side, apart, in any order, outside of it.
var places = [][]int32{{0, 1, 2}, {4, 0, 2}, {3, 4, 5}, {-1, 1, -1}, {1000, -3, 0}, {math.MaxInt32, math.MinInt32, 4},
	{-1, -1, -1}}

func TestKVAppend(t *testing.T) {
	var cases []kerneltest.Case
	for _, at := range places {
		cases = append(cases, kerneltest.Case{
			Name: fmt.Sprint(at), Kernel: kernel.KVAppend{},
			In: []kerneltest.Input{kerneltest.Normal(5, 3), kerneltest.Normal(3, 3), kerneltest.Ints(at, 3)},
		})
	}
	cases = append(cases, kerneltest.Case{
		Name: "two places a row", Kernel: kernel.KVAppend{},
		In: []kerneltest.Input{kerneltest.Normal(7, 3), kerneltest.Normal(3, 3),
			kerneltest.Ints([]int32{6, 0, -1, 3, 2, 9}, 6)},
	})
	kerneltest.Run(t, cases...)

	got := apply(t, kernel.KVAppend{}, tensor32([]float32{1, 2, 3, 4, 5}, 5, 1), tensor32([]float32{10, 20}, 2, 1),
		tensorOf([]int32{4, 0, -1, 3}))[0].F32()
	if want := []float32{10, 2, 3, 20, 10}; !slices.Equal(got, want) {
		t.Errorf("two places a row: %v, want %v", got, want)
	}
	for _, places := range places {
		want := []float32{1, 2, 3, 4, 5}
		for i, v := range []float32{10, 20, 30} {
			if at := places[i]; at >= 0 && int(at) < len(want) {
				want[at] = v
			}
		}
		got := apply(t, kernel.KVAppend{}, tensor32([]float32{1, 2, 3, 4, 5}, 5, 1),
			tensor32([]float32{10, 20, 30}, 3, 1), tensorOf(places))[0].F32()
		if !slices.Equal(got, want) {
			t.Errorf("places %v: %v, want %v", places, got, want)
		}
	}
}
