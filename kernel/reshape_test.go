package kernel_test

import (
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestReshape(t *testing.T) {
	for _, c := range []kernel.Reshape{{From: 6, To: 2}, {From: 6, To: 42}, {From: 6, To: 6}, {From: 6, To: 1}} {
		kerneltest.Run(t, kerneltest.Case{Kernel: c, In: []kerneltest.Input{kerneltest.Normal(6, 7)}})
	}
	kerneltest.Run(t, kerneltest.Case{Name: "many rows", Kernel: kernel.Reshape{From: 9000, To: 300},
		In: []kerneltest.Input{kerneltest.Normal(9000, 8)}})
	got := evaluate(t, kernel.Reshape{From: 2, To: 4}, f32s([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 2, 4))[0]
	want := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	if !slices.Equal(got.F32(), want) || !slices.Equal(got.Shape, []int{4, 2}) {
		t.Errorf("%v of shape %v", got.F32(), got.Shape)
	}
	for _, bad := range []kernel.Reshape{{From: 2, To: 0}, {From: 2, To: 3}, {From: 4, To: 2}, {From: 2, To: -2}} {
		if _, err := bad.Shape([]kernel.Type{kernel.T(kernel.F32, 2, 4)}); err == nil {
			t.Errorf("%+v of two rows of four is accepted", bad)
		}
	}
}
