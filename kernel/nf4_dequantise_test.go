package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestDequantiseNF4(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {5, 7}, {64, 64}, {33, 130}, {401, 37}} {
		for _, nested := range []bool{false, true} {
			p := packedWeight(t, s[0], s[1], nested)
			at := func(d kernel.DType) kernel.Kernel {
				return kernel.DequantiseNF4{N: s[0], K: s[1], Nested: nested, Float: d}
			}
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%v nested %v", s, nested), At: at, Bound: 1e-12, In: packedInputs(p, false)})
			want := make([]float32, p.Len())
			p.Dequantize(want)
			for _, d := range []kernel.DType{kernel.F32, kernel.F64} {
				got := apply(t, at(d), packedTensors(p, false)...)[0]
				for i, w := range want {
					if d == kernel.F32 && got.F32()[i] != w || d == kernel.F64 && got.F64()[i] != float64(w) {
						t.Fatalf("%v nested %v as %v: element %d is another", s, nested, d, i)
					}
				}
			}
		}
	}
}
