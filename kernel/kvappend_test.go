package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// starts are places of three rows in a cache of five: inside, over either end, and far outside.
var starts = []int32{0, 1, 2, 3, 4, 5, -1, -2, -3, 1000, math.MaxInt32, math.MinInt32}

func TestKVAppend(t *testing.T) {
	var cases []kerneltest.Case
	for _, start := range starts {
		cases = append(cases, kerneltest.Case{
			Name: fmt.Sprint(start), Kernel: kernel.KVAppend{},
			In: []kerneltest.Input{kerneltest.Normal(5, 3), kerneltest.Normal(3, 3), kerneltest.Ints([]int32{start}, 1)},
		})
	}
	kerneltest.Run(t, cases...)

	for _, start := range starts {
		want := []float32{1, 2, 3, 4, 5}
		for i, v := range []float32{10, 20, 30} {
			if at := int(start) + i; at >= 0 && at < len(want) {
				want[at] = v
			}
		}
		got := apply(t, kernel.KVAppend{}, tensor32([]float32{1, 2, 3, 4, 5}, 5, 1), tensor32([]float32{10, 20, 30}, 3, 1), tensorOf([]int32{start}))[0].F32()
		if !slices.Equal(got, want) {
			t.Errorf("start %d: %v, want %v", start, got, want)
		}
	}
}
