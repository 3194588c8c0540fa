package kernel_test

import (
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestAdd(t *testing.T) {
	var cases []kerneltest.Case
	for name, shape := range map[string][]int{"scalar": {}, "one": {1}, "odd": {5, 7}, "several pieces": {3, 1<<14 + 1}} {
		in := []kerneltest.Input{kerneltest.Normal(shape...), kerneltest.Normal(shape...)}
		cases = append(cases,
			kerneltest.Case{Name: "add " + name, Kernel: kernel.Add{}, In: in, Bound: 6e-8},
			kerneltest.Case{Name: "to " + name, Kernel: kernel.AddTo{}, In: in, Bound: 6e-8})
	}
	kerneltest.Run(t, cases...)
}
