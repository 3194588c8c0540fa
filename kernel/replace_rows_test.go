package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestReplaceRows(t *testing.T) {
	many := make([]int32, 300)
	for i := range many {
		many[i] = int32(i*31%50) - 40
	}
	few := []int32{-1, 2, 0, 2, 3, -1}
	for _, k := range []kernel.ReplaceRows{{}, {Scale: 1.7}} {
		for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
			kerneltest.Run(t,
				kerneltest.Case{Name: fmt.Sprint("few ", k.Scale, d), Kernel: k, Bound: 2e-7,
					In: []kerneltest.Input{kerneltest.Normal(6, 9).As(d), kerneltest.Normal(3, 9),
						kerneltest.Ints(few, 6)}},
				kerneltest.Case{Name: fmt.Sprint("pieces ", k.Scale, d), Kernel: k, Bound: 2e-7,
					In: []kerneltest.Input{kerneltest.Normal(300, 130).As(d), kerneltest.Normal(9, 130),
						kerneltest.Ints(many, 300)}})
		}
		g := kernel.ReplaceRowsGrad(k)
		kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprint("gradient ", k.Scale), Kernel: g, Bound: 4e-7,
			In: []kerneltest.Input{kerneltest.Normal(9, 130), kerneltest.Ints(many, 300), kerneltest.Normal(300, 130)}})
	}
	kerneltest.Run(t, kerneltest.Case{Name: "lookup", Kernel: kernel.Lookup{},
		In: []kerneltest.Input{kerneltest.Ints(many, 300), kerneltest.Ints(few, 6)}})
}

// TestReplaceRowsMeaning: rows are put in where a place names one, and their gradients add up.
func TestReplaceRowsMeaning(t *testing.T) {
	x, rows := f64s([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2), f64s([]float64{10, 20, 30, 40}, 2, 2)
	ids, table := i32s([]int32{3, 0, 3, 9}), i32s([]int32{-1, -1, 0, 1})
	at := evaluate(t, kernel.Lookup{}, ids, table)[0]
	near(t, "rows", evaluate(t, kernel.ReplaceRows{}, x, rows, at)[0].F64(),
		[]float64{30, 40, 3, 4, 30, 40, 7, 8}, 0)
	near(t, "scaled", evaluate(t, kernel.ReplaceRows{Scale: 2}, x, rows, at)[0].F64(),
		[]float64{60, 80, 3, 4, 60, 80, 7, 8}, 0)
	dy := f64s([]float64{1, 2, 10, 20, 100, 200, 5, 6}, 4, 2)
	near(t, "gradient", evaluate(t, kernel.ReplaceRowsGrad{Scale: 2}, rows, at, dy)[0].F64(),
		[]float64{0, 0, 202, 404}, 0)
}
