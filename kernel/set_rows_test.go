package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestSetRows(t *testing.T) {
	many := make([]int32, 300)
	for i := range many {
		many[i] = int32(i*31%90) - 40
	}
	for _, mode := range []kernel.RowsMode{kernel.PutRows, kernel.AddRows, kernel.ClearRows} {
		k := kernel.SetRows{Mode: mode}
		kerneltest.Run(t,
			kerneltest.Case{Name: fmt.Sprint("few ", mode), Kernel: k, In: []kerneltest.Input{kerneltest.Normal(5, 9),
				kerneltest.Normal(2, 9), kerneltest.Ints([]int32{-1, 1, 0, math.MinInt32, 1}, 5)}, Bound: 2e-7},
			kerneltest.Case{Name: fmt.Sprint("many ", mode), Kernel: k, In: []kerneltest.Input{
				kerneltest.Normal(300, 130), kerneltest.Normal(50, 130), kerneltest.Ints(many, 300)}, Bound: 2e-7})
		for _, d := range []kernel.DType{kernel.BF16, kernel.F16} {
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprint(d, mode), Kernel: k, In: []kerneltest.Input{
				kerneltest.Normal(3, 9), kerneltest.Normal(2, 9).As(d), kerneltest.Ints([]int32{1, -1, 0}, 3)},
				Bound: 2e-7})
		}
	}
}

// TestSetRowsMeaning: rows are replaced, added to or cleared where they have a row of the table.
func TestSetRowsMeaning(t *testing.T) {
	x, table := f64s([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2), f64s([]float64{10, 20, 30, 40}, 2, 2)
	from, nan := i32s([]int32{1, -1, 0, 2}), math.NaN()
	for mode, want := range map[kernel.RowsMode][]float64{
		kernel.PutRows:   {30, 40, 3, 4, 10, 20, nan, nan},
		kernel.AddRows:   {31, 42, 3, 4, 15, 26, nan, nan},
		kernel.ClearRows: {0, 0, 3, 4, 0, 0, 0, 0},
	} {
		near(t, fmt.Sprint(mode), evaluate(t, kernel.SetRows{Mode: mode}, x, table, from)[0].F64(), want, 0)
	}
}
