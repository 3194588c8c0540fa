package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestGradNorm(t *testing.T) {
	var cases []kerneltest.Case
	for _, n := range []int{1, 7, 1 << 14, 3<<14 + 5} {
		for _, most := range []float64{0, 1, 1e6} {
			cases = append(cases, kerneltest.Case{
				Name: fmt.Sprintf("%d to %v", n, most), Kernel: kernel.GradNorm{MaxNorm: most}, Bound: 6e-8,
				In: []kerneltest.Input{kerneltest.Normal(n), kerneltest.Values([]float64{2}), kerneltest.Normal(2)},
			})
		}
	}
	cases = append(cases, kerneltest.Case{Name: "scaled", Kernel: kernel.GradNorm{MaxNorm: 1, Scaled: true},
		Bound: 6e-8,
		In: []kerneltest.Input{kerneltest.Normal(777), kerneltest.Values([]float64{2}), kerneltest.Normal(2),
			kerneltest.Values([]float64{1024, 3, 1}, 3)}})
	kerneltest.Run(t, cases...)
	for _, c := range []struct {
		most float64
		g    []float64
		want [2]float64
		loss float64
	}{
		{1, []float64{3, 0, 4}, [2]float64{5, 1 / (5 + 1e-6)}, 2},
		{0, []float64{3, 0, 4}, [2]float64{5, 1}, 2},
		{-1, []float64{3, 0, 4}, [2]float64{5, 1}, 2},
		{6, []float64{3, 0, 4}, [2]float64{5, 1}, 2},
		{1, []float64{0, 0}, [2]float64{0, 1}, 0},
		{1, []float64{1, math.NaN()}, [2]float64{math.NaN(), math.NaN()}, 2},
		{1, []float64{1, math.Inf(-1)}, [2]float64{math.Inf(1), math.NaN()}, 2},
		{0, []float64{3, 0, 4}, [2]float64{5, math.NaN()}, math.NaN()},
		{1, []float64{3, 0, 4}, [2]float64{5, math.NaN()}, math.Inf(1)},
	} {
		y := apply(t, kernel.GradNorm{MaxNorm: c.most}, tensor64(kernel.T(kernel.F64, len(c.g)), c.g),
			tensor64(kernel.T(kernel.F64), []float64{c.loss}),
			tensor64(kernel.T(kernel.F64, 2), []float64{7, 7}))[0].F64()
		for i, want := range c.want {
			if y[i] != want && !(math.IsNaN(y[i]) && math.IsNaN(want)) {
				t.Errorf("%v of at most %v: output %d is %v, want %v", c.g, c.most, i, y[i], want)
			}
		}
	}
}

// The largest float32 numbers have a norm: squares are taken in float64.
func TestGradNormOfLargeNumbers(t *testing.T) {
	y := apply(t, kernel.GradNorm{MaxNorm: 1}, tensor32([]float32{2e38, 2e38}, 2), tensor32([]float32{1}),
		tensor32(make([]float32, 2), 2))[0].F32()
	if want := float32(math.Sqrt2 * 2e38); math.Abs(float64(y[0]/want-1)) > 1e-6 {
		t.Errorf("norm %v, want %v", y[0], want)
	}
}
