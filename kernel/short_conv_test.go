package kernel_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestShortConv(t *testing.T) {
	for _, l := range stretches {
		for _, filter := range []int{1, 2, 3, 5} {
			for _, width := range []int{1, 24, 43} {
				x, w, cu := kerneltest.Normal(l.rows, 3*width), kerneltest.Normal(width, filter),
					kerneltest.Ints(l.cu, len(l.cu))
				name := fmt.Sprintf("%s, %d of %d", l.name, filter, width)
				kerneltest.Run(t,
					kerneltest.Case{Name: name, Kernel: kernel.ShortConv{}, In: []kerneltest.Input{x, w, cu},
						Bound: 1e-6},
					kerneltest.Case{Name: name + " backward", Kernel: kernel.ShortConvGrad{},
						In: []kerneltest.Input{x, w, cu, kerneltest.Normal(l.rows, width)}, Bound: 1e-6},
				)
			}
		}
	}
	kerneltest.Run(t, kerneltest.Case{Name: "cached", Kernel: kernel.ShortConvCached{Tokens: 10},
		In: []kerneltest.Input{kerneltest.Normal(9, 15), kerneltest.Normal(5, 3),
			kerneltest.Ints([]int32{0, 4, 4, 7}, 4), kerneltest.Ints([]int32{0, 4, 10, 15}, 4),
			kerneltest.Normal(2, 10)}, Bound: 1e-6})
}

// TestShortConvMeaning compares with the formula, over two packed sequences whose rows must not reach each other.
func TestShortConvMeaning(t *testing.T) {
	const rows, width, taps = 7, 2, 3
	x, w := normal64(1, rows*3*width), normal64(2, width*taps)
	cu := []int32{0, 4, 7}
	want := make([]float64, rows*width)
	for s := range len(cu) - 1 {
		for r := int(cu[s]); r < int(cu[s+1]); r++ {
			for c := range width {
				sum := 0.0
				for j := range taps {
					if from := r - taps + 1 + j; from >= int(cu[s]) {
						sum += w[c*taps+j] * x[from*3*width+c] * x[from*3*width+2*width+c]
					}
				}
				want[r*width+c] = sum * x[r*3*width+width+c]
			}
		}
	}
	out := evaluate(t, kernel.ShortConv{}, f64s(x, rows, 3*width), f64s(w, width, taps), i32s(cu))
	near(t, "y", out[0].F64(), want, 1e-14)
	for what, in := range map[string][]kernel.Type{
		"two thirds": {kernel.T(kernel.F32, 5, 4), kernel.T(kernel.F32, 2, 3), kernel.T(kernel.I32, 2)},
		"no tap":     {kernel.T(kernel.F32, 5, 6), kernel.T(kernel.F32, 2, 0), kernel.T(kernel.I32, 2)},
		"no bounds":  {kernel.T(kernel.F32, 5, 6), kernel.T(kernel.F32, 2, 3), kernel.T(kernel.I32, 0)},
	} {
		if _, err := (kernel.ShortConv{}).Shape(in); err == nil {
			t.Errorf("%s: %v is accepted", what, in)
		}
	}
}

// TestShortConvCached: a text in pieces is bit for bit what it is whole; a text that begins in a slot does not read
// what the slot held, and a slot without a row stays as it is.
func TestShortConvCached(t *testing.T) {
	const rows, width, taps, tokens = 9, 4, 3, 20
	floats := func(seed uint64, n int) (x []float32) {
		for _, v := range normal64(seed, n) {
			x = append(x, float32(v))
		}
		return x
	}
	x, w := floats(1, rows*3*width), f32s(floats(2, width*taps), width, taps)
	whole := evaluate(t, kernel.ShortConv{}, f32s(x, rows, 3*width), w, i32s([]int32{0, rows}))[0].F32()
	state := f32s(floats(3, 3*(taps-1)*width), 3, (taps-1)*width) // what earlier texts left
	other := slices.Clone(state.F32()[:(taps-1)*width])
	for _, piece := range [][2]int{{0, 1}, {1, 5}, {5, 6}, {6, rows}} {
		from, to := piece[0], piece[1]
		part := f32s(x[from*3*width:to*3*width], to-from, 3*width)
		out := evaluate(t, kernel.ShortConvCached{Tokens: tokens}, part, w,
			i32s([]int32{0, int32(to - from)}), i32s([]int32{2 * tokens, int32(2*tokens + to)}), state)
		if got := out[0].F32(); !slices.Equal(got, whole[from*width:to*width]) {
			t.Errorf("tokens %d..%d: %v, want %v", from, to, got, whole[from*width:to*width])
		}
		state = out[1]
		if !slices.Equal(state.F32()[:len(other)], other) {
			t.Error("a slot without a row changes")
		}
	}
}
