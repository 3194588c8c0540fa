package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestPool(t *testing.T) {
	for i, spans := range [][]int32{
		{0, 1},
		{4, 5},
		{0, 5},
		{0, 2, 2, 2, 2, 3, 4, 5},
		{1, 2, 3, 9, 9, 9},
		{},
	} {
		S := len(spans) / 2
		x, s := kerneltest.Normal(5, 3), kerneltest.Ints(spans, S, 2)
		kerneltest.Run(t,
			kerneltest.Case{Name: fmt.Sprintf("%d", i), Kernel: kernel.Pool{}, In: []kerneltest.Input{x, s},
				Bound: 1e-7},
			kerneltest.Case{Name: fmt.Sprintf("%d, gradient", i), Kernel: kernel.PoolGrad{},
				In: []kerneltest.Input{x, s, kerneltest.Normal(S, 3)}, Bound: 1e-7},
		)
	}
}

// TestPoolMeaning checks means of spans by hand: the last token, all tokens, and a sequence that is not there.
func TestPoolMeaning(t *testing.T) {
	x, spans := f64s([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2), i32s([]int32{0, 2, 2, 2, 3, 4})
	spans.Shape = []int{3, 2}
	out := evaluate(t, kernel.Pool{}, x, spans)
	near(t, "vectors", out[0].F64(), []float64{2, 3, 0, 0, 7, 8}, 0)
	out = evaluate(t, kernel.PoolGrad{}, x, spans, f64s([]float64{2, 4, 9, 9, 5, 6}, 3, 2))
	near(t, "gradient", out[0].F64(), []float64{1, 2, 1, 2, 0, 0, 5, 6}, 0)
}

func TestPoolRefuses(t *testing.T) {
	for what, in := range map[string][]kernel.Type{
		"spans of one end": {kernel.T(kernel.F32, 3, 2), kernel.T(kernel.I32, 2, 1)},
		"a vector":         {kernel.T(kernel.F32, 3), kernel.T(kernel.I32, 2, 2)},
	} {
		if _, err := (kernel.Pool{}).Shape(in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
