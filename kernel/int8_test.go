package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/quant"
)

func TestMatMulInt8(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][3]int{{1, 1, 1}, {3, 5, 7}, {2, 64, 64}, {5, 33, 130}, {9, 130, 172}, {20, 40, 401},
		{20, 401, 37}} {
		p := packedAs(t, s[1], s[2], quant.DefaultOf("int8"))
		for _, transposed := range []bool{false, true} {
			width := s[2]
			if transposed {
				width = s[1]
			}
			cases = append(cases, kerneltest.Case{
				Name:   fmt.Sprintf("%v transposed %v", s, transposed),
				Kernel: kernel.MatMulInt8{N: s[1], K: s[2], Transposed: transposed}, Bound: 1e-6,
				In: append([]kerneltest.Input{kerneltest.Normal(s[0], width)}, packedInputs(p)...),
			})
		}
	}
	kerneltest.Run(t, cases...)
}
