package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestAddBias(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][2]int{{1, 1}, {3, 5}, {67, 401}} {
		for _, d := range []kernel.DType{kernel.F32, kernel.F64, kernel.BF16, kernel.F16} {
			cases = append(cases, kerneltest.Case{
				Name: fmt.Sprintf("%v %v", s, d), Kernel: kernel.AddBias{}, Bound: 1e-7,
				In: []kerneltest.Input{kerneltest.Normal(s[0], s[1]), kerneltest.Normal(s[1]).As(d)},
			})
		}
	}
	kerneltest.Run(t, cases...)
	y := apply(t, kernel.AddBias{}, tensor32([]float32{1, 2, 3, 4}, 2, 2), tensor32([]float32{10, 20}, 2))[0].F32()
	for i, want := range []float32{11, 22, 13, 24} {
		if y[i] != want {
			t.Errorf("element %d is %v, want %v", i, y[i], want)
		}
	}
}
