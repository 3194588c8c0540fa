package kernel_test

import (
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// roundStochastic returns float32 numbers rounded by a counter with so many workers.
func roundStochastic(t *testing.T, workers int, x []float32, counter ...int32) []float32 {
	t.Helper()
	w, in := kernel.NewTensor(kernel.T(kernel.F32, len(x)), kernel.Alloc(int64(4*len(x)))),
		kernel.NewTensor(kernel.T(kernel.F32, len(x)), kernel.Alloc(int64(4*len(x))))
	copy(in.F32(), x)
	c := kernel.NewTensor(kernel.T(kernel.I32, 2), kernel.Alloc(8))
	copy(c.I32(), counter)
	run, out := work(t, workers, kernel.RoundStochastic{Stream: 7}, w, in, c)
	run()
	return slices.Clone(out[0].F32())
}

// TestRoundStochastic: every result is one of the two neighbours, a bf16 and what is not finite stay, the mean of many
// results is the number, and bits depend on the seed, the step and the place, not on the number of workers.
func TestRoundStochastic(t *testing.T) {
	const n = 1 << 16
	ulp := math.Float32frombits(0x3f810000) - 1 // of bf16 at 1
	inf, nan := float32(math.Inf(1)), math.Float32frombits(0x7f800001)
	for _, x := range []float32{1 + ulp/4, -1 - ulp/2, 3 + 2*ulp/8, 1e-41, 0x1p-126 + 0x1p-140} {
		got := roundStochastic(t, 2, slices.Repeat([]float32{x}, n), 3, 5)
		lo := math.Float32frombits(math.Float32bits(x) &^ 0xffff)
		hi := math.Float32frombits(math.Float32bits(x)&^0xffff + 1<<16)
		sum := 0.0
		for _, y := range got {
			if y != lo && y != hi {
				t.Fatalf("%v becomes %v, want %v or %v", x, y, lo, hi)
			}
			sum += float64(y)
		}
		step := math.Abs(float64(hi) - float64(lo))
		if off := math.Abs(sum/n-float64(x)) / step; off > 4*0.5/math.Sqrt(n) {
			t.Errorf("%v: the mean is off by %v of a step of bf16", x, off)
		}
	}
	for _, x := range []float32{0, 1.5, -0.0078125, inf, -inf, math.Float32frombits(0x7f7f0000)} {
		for i, y := range roundStochastic(t, 1, slices.Repeat([]float32{x}, 100), 3, 5) {
			if y != x {
				t.Fatalf("%v becomes %v at %d", x, y, i)
			}
		}
	}
	if y := roundStochastic(t, 1, []float32{nan}, 1, 1)[0]; y == y {
		t.Errorf("a NaN becomes %v", y)
	}
	many := make([]float32, 3*8192+5)
	for i := range many {
		many[i] = float32(math.Sin(float64(i)))
	}
	one := roundStochastic(t, 1, many, 3, 5)
	if !slices.Equal(one, roundStochastic(t, 7, many, 3, 5)) {
		t.Error("another number of workers rounds otherwise")
	}
	for _, other := range [][]int32{{4, 5}, {3, 6}} {
		if slices.Equal(one, roundStochastic(t, 1, many, other...)) {
			t.Errorf("the counter %v rounds as (3, 5) does", other)
		}
	}
	if slices.Equal(one[:8000], roundStochastic(t, 1, many[8:8008], 3, 5)) {
		t.Error("the place of a number has no part")
	}
}
