package kernel_test

import (
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestColumns(t *testing.T) {
	for _, c := range []kernel.Columns{{From: 0, Width: 7}, {From: 2, Width: 3}, {From: 6, Width: 1}} {
		kerneltest.Run(t, kerneltest.Case{Kernel: c, In: []kerneltest.Input{kerneltest.Normal(5, 7)}},
			kerneltest.Case{Name: "many rows", Kernel: c, In: []kerneltest.Input{kerneltest.Normal(9000, 7)}})
	}
	got := evaluate(t, kernel.Columns{From: 1, Width: 2}, f32s([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 2, 4))[0].F32()
	if want := []float32{2, 3, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, bad := range []kernel.Columns{{From: -1, Width: 2}, {From: 0, Width: 0}, {From: 3, Width: 2}} {
		if _, err := bad.Shape([]kernel.Type{kernel.T(kernel.F32, 2, 4)}); err == nil {
			t.Errorf("%+v of four columns is accepted", bad)
		}
	}
}
