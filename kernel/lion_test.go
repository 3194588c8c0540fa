package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestLion(t *testing.T) {
	var cases []kerneltest.Case
	for _, n := range []int{1, 5, 3<<13 + 1} {
		for _, decay := range []float64{0, 0.1} {
			for _, scaled := range []bool{false, true} {
				c := kerneltest.Case{
					Name: fmt.Sprintf("%d decay %v scaled %v", n, decay, scaled), Bound: 4e-7,
					Kernel: kernel.Lion{Beta1: 0.9, Beta2: 0.99, WeightDecay: decay, Scaled: scaled},
					In: []kerneltest.Input{
						kerneltest.Normal(n), kerneltest.Normal(n), kerneltest.Normal(n),
						kerneltest.Values([]float64{3, 0.3}, 2), kerneltest.Values([]float64{1e-2, 0, 0, 0}, 4),
					},
				}
				if scaled {
					c.In = append(c.In, kerneltest.Values([]float64{1024, 1, 2}, 3))
				}
				cases = append(cases, c)
			}
		}
	}
	kerneltest.Run(t, cases...)
}

// TestLionByHand: three numbers whose sums have each sign, two steps after one another, and a step that is skipped.
func TestLionByHand(t *testing.T) {
	const lr, decay = 0.1, 0.5
	of := func(v ...float64) kernel.Tensor { return tensor64(kernel.T(kernel.F64, len(v)), v) }
	clip, grad := of(9, 0.5), of(1, -2, -0.5)
	run, out := work(t, 1, kernel.Lion{Beta1: 0.5, Beta2: 0.75, WeightDecay: decay}, of(1, 2, -4), grad,
		of(0.25, 0.5, 0.25), clip, of(lr))
	near := func(when string, want ...[]float64) {
		t.Helper()
		for i, w := range want {
			for j := range w {
				if got := out[i].F64()[j]; math.Abs(got-w[j]) > 1e-15 {
					t.Errorf("%s: output %d, element %d is %v, want %v", when, i, j, got, w[j])
				}
			}
		}
	}
	run() // clipped g = 0.5, -1, -0.25; sums 0.375, -0.25, 0
	near("first step", []float64{1*0.95 - 0.1, 2*0.95 + 0.1, -4 * 0.95}, []float64{0.3125, 0.125, 0.125})
	copy(grad.F64(), []float64{-8, 0, 2})
	run() // clipped g = -4, 0, 1; sums -1.84375, 0.0625, 0.5625
	near("second step", []float64{0.85*0.95 + 0.1, 2*0.95 - 0.1, -3.8*0.95 - 0.1},
		[]float64{-0.765625, 0.09375, 0.34375})
	p, m := slices.Clone(out[0].F64()), slices.Clone(out[1].F64())
	clip.F64()[1] = math.NaN()
	run()
	if !slices.Equal(p, out[0].F64()) || !slices.Equal(m, out[1].F64()) {
		t.Errorf("a step without a clip factor changed %v, %v to %v, %v", p, m, out[0].F64(), out[1].F64())
	}
}

// TestLionRejects: what Shape must not take.
func TestLionRejects(t *testing.T) {
	f := func(n int) kernel.Type { return kernel.T(kernel.F32, n) }
	k := kernel.Lion{Beta1: 0.9, Beta2: 0.99}
	if _, err := k.Shape([]kernel.Type{f(8), f(8), f(8), f(2), f(1)}); err != nil {
		t.Error(err)
	}
	for what, in := range map[string][]kernel.Type{
		"another length": {f(8), f(7), f(8), f(2), f(1)}, "no moment": {f(8), f(8), f(2), f(1)},
		"a clip of one":   {f(8), f(8), f(8), f(1), f(1)},
		"mixed types":     {f(8), f(8), kernel.T(kernel.F64, 8), f(2), f(1)},
		"scaling unasked": {f(8), f(8), f(8), f(2), f(1), f(3)},
	} {
		if _, err := k.Shape(in); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}
