package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/quant"
)

func TestDequantisePacked(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {5, 7}, {64, 64}, {33, 130}, {401, 37}} {
		for _, c := range append(fourBits[:len(fourBits):len(fourBits)], quant.DefaultOf("int8")) {
			p := packedAs(t, s[0], s[1], c)
			var in []kerneltest.Input
			var tensors []kernel.Tensor
			for _, part := range c.Parts(s[0], s[1]) {
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
				return kernel.Packed[c.Type].Dequantise(s[0], s[1], c, d)
			}
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%v %s nested %v map %d", s, c.Type, c.DoubleQuant, c.Map), At: at, Bound: 1e-12, In: in})
			want := make([]float32, p.Len())
			p.Dequantise(want)
			for _, d := range []kernel.DType{kernel.F32, kernel.F64} {
				got := apply(t, at(d), tensors...)[0]
				for i, w := range want {
					if d == kernel.F32 && got.F32()[i] != w || d == kernel.F64 && got.F64()[i] != float64(w) {
						t.Fatalf("%v %+v as %v: element %d is another", s, c, d, i)
					}
				}
			}
		}
	}
}
