package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestAxisAngles(t *testing.T) {
	many := make([]int32, 3*200)
	for i := range many {
		many[i] = int32(i * 31 % 45)
	}
	for _, k := range []kernel.AxisAngles{{}, {Rows: 2, Columns: 2}, {Rows: 20, Columns: 9},
		{Rows: 3, Columns: 4, Contiguous: true}} {
		kerneltest.Run(t,
			kerneltest.Case{Name: fmt.Sprint("few ", k), Kernel: k, In: []kerneltest.Input{kerneltest.Normal(5, 16),
				kerneltest.Ints([]int32{0, 1, 2, 4, 4, 4, 3, 0, 1}, 9)}},
			kerneltest.Case{Name: fmt.Sprint("many ", k), Kernel: k, In: []kerneltest.Input{kerneltest.Normal(45, 128),
				kerneltest.Ints(many, 600)}})
	}
}

// TestAxisAnglesMeaning: frequencies take coordinates in turns, and the first from where its section ends; contiguous
// ones take the first, then the second and then the third.
func TestAxisAnglesMeaning(t *testing.T) {
	const P, half = 4, 8
	table := zeros(kernel.F64, P, 2*half)
	for i := range table.F64() {
		table.F64()[i] = float64(i)
	}
	for k, axes := range map[kernel.AxisAngles][]int{{Rows: 2, Columns: 1}: {0, 1, 2, 0, 1, 0, 0, 0},
		{Rows: 3, Columns: 1, Contiguous: true}: {0, 0, 0, 0, 1, 1, 1, 2}} {
		got := evaluate(t, k, table, i32s([]int32{1, 2, 3, 0, 0, 9}))[0].F64()
		var want []float64
		for _, position := range [][3]int{{1, 2, 3}, {0, 0, 9}} {
			for _, part := range []int{0, half} {
				for i, axis := range axes {
					if p := position[axis]; p < P {
						want = append(want, float64(p*2*half+part+i))
					} else {
						want = append(want, math.NaN())
					}
				}
			}
		}
		near(t, "angles", got, want, 0)
	}
}
