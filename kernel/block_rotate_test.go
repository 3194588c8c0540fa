package kernel_test

import (
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestBlockRotate(t *testing.T) {
	for _, z := range [][3]int{{1, 4, 4}, {5, 12, 3}, {33, 8, 1}, {40, 64, 32}} { // rows, columns, block
		m, c, b := z[0], z[1], z[2]
		for _, k := range []kernel.Kernel{kernel.BlockRotate{Block: b}, kernel.BlockRotate{Block: b, TransB: true}} {
			kerneltest.Run(t, kerneltest.Case{Kernel: k, Bound: 2e-6,
				In: []kerneltest.Input{kerneltest.Normal(m, c), kerneltest.Normal(c, b)}})
		}
		kerneltest.Run(t, kerneltest.Case{Kernel: kernel.BlockOuter{Block: b}, Bound: 2e-6,
			In: []kerneltest.Input{kerneltest.Normal(m, c), kerneltest.Normal(m, c)}})
	}
	x, r := f32s([]float32{1, 2, 3, 4}, 1, 4), f32s([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2)
	if y := evaluate(t, kernel.BlockRotate{Block: 2}, x, r)[0].F32(); !slices.Equal(y, []float32{7, 10, 43, 50}) {
		t.Errorf("%v", y)
	}
	if y := evaluate(t, kernel.BlockRotate{Block: 2, TransB: true}, x, r)[0].F32(); !slices.Equal(y,
		[]float32{5, 11, 39, 53}) {
		t.Errorf("transposed: %v", y)
	}
	for _, bad := range []kernel.Kernel{kernel.BlockRotate{Block: 0}, kernel.BlockRotate{Block: 3},
		kernel.BlockRotate{Block: 4}} {
		if _, err := bad.Shape([]kernel.Type{kernel.T(kernel.F32, 2, 4), kernel.T(kernel.F32, 4, 2)}); err == nil {
			t.Errorf("%+v of four columns and matrices of two is accepted", bad)
		}
	}
}
