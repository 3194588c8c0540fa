package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/quant"
)

func TestDequantiseNF4(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {5, 7}, {64, 64}, {33, 130}, {401, 37}} {
		for _, nested := range []bool{false, true} {
			p := packedWeight(t, s[0], s[1], nested)
			var in []kerneltest.Input
			var tensors []kernel.Tensor
			for _, part := range (quant.Config{Bits: 4, Type: "nf4", BlockSize: 64, DoubleQuant: nested}).Parts(s[0], s[1]) {
				if part.Floats == nil {
					in, tensors = append(in, kerneltest.Bytes(part.Bytes(&p), part.Len)), append(tensors, tensorOf(part.Bytes(&p)))
					continue
				}
				var wide []float64
				for _, v := range part.Floats(&p) {
					wide = append(wide, float64(v))
				}
				in = append(in, kerneltest.Values(wide, part.Len).As(kernel.F32))
				tensors = append(tensors, tensor32(part.Floats(&p), part.Len))
			}
			at := func(d kernel.DType) kernel.Kernel {
				return kernel.DequantiseNF4{N: s[0], K: s[1], Nested: nested, Float: d}
			}
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%v nested %v", s, nested), At: at, Bound: 1e-12, In: in})
			want := make([]float32, p.Len())
			p.Dequantise(want)
			for _, d := range []kernel.DType{kernel.F32, kernel.F64} {
				got := apply(t, at(d), tensors...)[0]
				for i, w := range want {
					if d == kernel.F32 && got.F32()[i] != w || d == kernel.F64 && got.F64()[i] != float64(w) {
						t.Fatalf("%v nested %v as %v: element %d is another", s, nested, d, i)
					}
				}
			}
		}
	}
}
