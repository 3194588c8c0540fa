package kernel_test

import (
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestZero(t *testing.T) {
	kerneltest.Run(t,
		kerneltest.Case{Name: "floats", Kernel: kernel.Zero{}, AnyType: true, In: []kerneltest.Input{kerneltest.Normal(5, 7)}},
		kerneltest.Case{Name: "several pieces", Kernel: kernel.Zero{}, AnyType: true, In: []kerneltest.Input{kerneltest.Normal(1<<17 + 3)}},
		kerneltest.Case{Name: "bf16", Kernel: kernel.Zero{}, AnyType: true, In: []kerneltest.Input{kerneltest.Normal(33).As(kernel.BF16)}},
		kerneltest.Case{Name: "ints", Kernel: kernel.Zero{}, AnyType: true, In: []kerneltest.Input{kerneltest.Ints([]int32{1, -1, 7}, 3)}})
	for i, v := range apply(t, kernel.Zero{}, tensor32([]float32{1, 2, 3}, 3))[0].F32() {
		if v != 0 {
			t.Errorf("element %d is %v", i, v)
		}
	}
}
