package kernel_test

import (
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestWeighExperts(t *testing.T) {
	kerneltest.Run(t,
		kerneltest.Case{Name: "odd", Kernel: kernel.WeighExperts{}, In: []kerneltest.Input{kerneltest.Normal(7, 3), kerneltest.Ints(chosen(5, 21), 7, 3), kerneltest.Normal(5)}, Bound: 2e-7},
		kerneltest.Case{Name: "pieces", Kernel: kernel.WeighExperts{}, In: []kerneltest.Input{kerneltest.Normal(4099, 8), kerneltest.Ints(chosen(128, 8*4099), 4099, 8), kerneltest.Normal(128)}, Bound: 2e-7},
	)
}

func TestWeighExpertsMeaning(t *testing.T) {
	experts := kernel.NewTensor(kernel.T(kernel.I32, 2, 2), kernel.Alloc(16))
	copy(experts.I32(), []int32{2, 0, 3, -1}) // two are none
	out := evaluate(t, kernel.WeighExperts{}, f64s([]float64{1, -2, 5, 6}, 2, 2), experts, f64s([]float64{0.5, 9, -1.5}, 3))
	near(t, "y", out[0].F64(), []float64{-1.5, -1, 0, 0}, 0)
	if _, err := (kernel.WeighExperts{}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 3), kernel.T(kernel.I32, 2, 2), kernel.T(kernel.F32, 3)}); err == nil || !strings.Contains(err.Error(), "input 1") {
		t.Errorf("other numbers of experts: %v", err)
	}
}

// chosen are n numbers of experts.
func chosen(experts, n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(i * 7 % experts)
	}
	return x
}
