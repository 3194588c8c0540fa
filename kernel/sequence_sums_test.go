package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestSequenceSums(t *testing.T) {
	const no = kernel.Untrained
	labels := make([]int32, 700)
	for i := range labels {
		if labels[i] = int32(i); i%3 == 1 {
			labels[i] = no
		}
	}
	for i, c := range []struct {
		labels, starts []int32
	}{
		{[]int32{4}, []int32{0, 1}},
		{[]int32{1, no, 2, 3, no}, []int32{0, 2, 2, 5}},
		{[]int32{1, no, 2, 3, 9, 9}, []int32{1, 2, 4, 4, 4}}, // tokens before and behind; empty sequences
		{[]int32{1, 2, 3}, []int32{0, 2, 9}},                 // the last sequence ends behind the batch
		{[]int32{1, 2, 3}, []int32{3}},                       // no sequence
		{labels, []int32{0, 1, 257, 513, 700, 700}},
	} {
		M, S := len(c.labels), len(c.starts)-1
		l, starts := kerneltest.Ints(c.labels, M), kerneltest.Ints(c.starts, S+1)
		kerneltest.Run(t,
			kerneltest.Case{Name: fmt.Sprintf("%d", i), Kernel: kernel.SequenceSums{},
				In: []kerneltest.Input{kerneltest.Normal(M), l, starts}, Bound: 1e-7},
			kerneltest.Case{Name: fmt.Sprintf("%d, two rows", i), Kernel: kernel.SequenceSums{},
				In: []kerneltest.Input{kerneltest.Normal(2, M), l, starts}, Bound: 1e-7},
			kerneltest.Case{Name: fmt.Sprintf("%d, gradient", i), Kernel: kernel.SequenceSumsGrad{},
				In: []kerneltest.Input{l, starts, kerneltest.Normal(S)}},
			kerneltest.Case{Name: fmt.Sprintf("%d, gradient of two rows", i), Kernel: kernel.SequenceSumsGrad{},
				In: []kerneltest.Input{l, starts, kerneltest.Normal(2, S)}},
		)
	}
}

func TestSequenceSumsMeaning(t *testing.T) {
	const no = kernel.Untrained
	nan := math.NaN()
	labels, starts := i32s([]int32{7, no, 3, 1, no, 2, 2}), i32s([]int32{0, 3, 3, 6})
	out := evaluate(t, kernel.SequenceSums{}, f64s([]float64{1, nan, 2, 4, nan, 8, nan}, 7), labels, starts)
	near(t, "sums", out[0].F64(), []float64{3, 0, 12}, 0)
	near(t, "counts", out[1].F64(), []float64{2, 0, 2}, 0)
	out = evaluate(t, kernel.SequenceSumsGrad{}, labels, starts, f64s([]float64{-1, 5, 0.5, 10, 50, -5}, 2, 3))
	near(t, "gradient", out[0].F64(), []float64{-1, 0, -1, 0.5, 0, 0.5, 0, 10, 0, 10, -5, 0, -5, 0}, 0)
}

func TestSequenceSumsRefuses(t *testing.T) {
	x, l, starts := kernel.T(kernel.F32, 3), kernel.T(kernel.I32, 3), kernel.T(kernel.I32, 2)
	for what, c := range map[string]struct {
		k  kernel.Kernel
		in []kernel.Type
	}{
		"no starts":               {kernel.SequenceSums{}, []kernel.Type{x, l, kernel.T(kernel.I32, 0)}},
		"labels of other tokens":  {kernel.SequenceSums{}, []kernel.Type{x, kernel.T(kernel.I32, 4), starts}},
		"no rows":                 {kernel.SequenceSums{}, []kernel.Type{kernel.T(kernel.F32, 0, 3), l, starts}},
		"three dimensions":        {kernel.SequenceSums{}, []kernel.Type{kernel.T(kernel.F32, 1, 1, 3), l, starts}},
		"a sum too many":          {kernel.SequenceSumsGrad{}, []kernel.Type{l, starts, kernel.T(kernel.F32, 2)}},
		"a gradient without rows": {kernel.SequenceSumsGrad{}, []kernel.Type{l, starts, kernel.T(kernel.F32, 0, 1)}},
	} {
		if _, err := c.k.Shape(c.in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
