package kernel_test

import (
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestHeadParts(t *testing.T) {
	for name, k := range map[string]kernel.HeadParts{"four": {Heads: 3, Widths: [4]int{2, 3, 1, 4}},
		"two, back": {Heads: 2, Widths: [4]int{5, 5}, Back: true}, "one head": {Heads: 1, Widths: [4]int{10}}} {
		width := k.Heads * (k.Widths[0] + k.Widths[1] + k.Widths[2] + k.Widths[3])
		kerneltest.Run(t, kerneltest.Case{Name: name, Kernel: k, In: []kerneltest.Input{kerneltest.Normal(7, width)}})
	}
	k := kernel.HeadParts{Heads: 2, Widths: [4]int{1, 2}}
	x := f64s([]float64{1, 2, 3, 4, 5, 6}, 1, 6)
	near(t, "part by part", evaluate(t, k, x)[0].F64(), []float64{1, 4, 2, 3, 5, 6}, 0)
	k.Back = true
	near(t, "head by head", evaluate(t, k, x)[0].F64(), []float64{1, 3, 4, 2, 5, 6}, 0)
	for what, o := range map[string]kernel.HeadParts{"no head": {Widths: [4]int{6}}, "no part": {Heads: 2},
		"a part below 0": {Heads: 2, Widths: [4]int{4, -1}}, "other columns": {Heads: 2, Widths: [4]int{2, 2}}} {
		if _, err := o.Shape([]kernel.Type{kernel.T(kernel.F32, 4, 6)}); err == nil {
			t.Errorf("%s: %+v is accepted", what, o)
		}
	}
}
