package kernel_test

import (
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestRMSNormWeightGrad(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {5, 13}, {33, 576}, {2, 4100}} {
		m, c := size[0], size[1]
		kerneltest.Run(t, kerneltest.Case{Name: kernel.T(kernel.F32, m, c).String(), Kernel: kernel.RMSNormWeightGrad{}, In: []kerneltest.Input{
			kerneltest.Normal(m, c), kerneltest.Uniform(0.5, 2, m), kerneltest.Normal(m, c),
		}, Bound: 2e-7})
	}
}
