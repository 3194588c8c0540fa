package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestHeadGate(t *testing.T) {
	for _, s := range [][3]int{{1, 1, 1}, {3, 2, 5}, {7, 4, 24}, {40, 3, 130}} {
		rows, heads, head := s[0], s[1], s[2]
		x, both := kerneltest.Normal(rows, heads*head), kerneltest.Normal(rows, 2*heads*head)
		name := fmt.Sprintf("%d rows, %d heads of %d", rows, heads, head)
		kerneltest.Run(t,
			kerneltest.Case{Name: name, Kernel: kernel.HeadGate{Heads: heads}, In: []kerneltest.Input{x, both}, Bound: 2.5e-7},
			kerneltest.Case{Name: name + " backward", Kernel: kernel.HeadGateGrad{Heads: heads}, In: []kerneltest.Input{x, both, x}, Bound: 2.5e-7},
			kerneltest.Case{Name: name + " queries", Kernel: kernel.HeadColumns{Heads: heads, Of: 2 * head, Width: head}, In: []kerneltest.Input{both}},
			kerneltest.Case{Name: name + " queries backward", Kernel: kernel.HeadColumnsGrad{Heads: heads, Of: 2 * head, Width: head}, In: []kerneltest.Input{x}},
		)
	}
}

// A gate of 0 lets a half through, one of ln 3 three quarters; queries lie before the gates of their head.
func TestHeadGateMeaning(t *testing.T) {
	x, both := f64s([]float64{4, -8, 2, 6}, 1, 4), f64s([]float64{5, 7, 0, 1.0986122886681098, 9, 11, 1.0986122886681098, 0}, 1, 8)
	near(t, "gated", evaluate(t, kernel.HeadGate{Heads: 2}, x, both)[0].F64(), []float64{2, -6, 1.5, 3}, 1e-15)
	near(t, "queries", evaluate(t, kernel.HeadColumns{Heads: 2, Of: 4, Width: 2}, both)[0].F64(), []float64{5, 7, 9, 11}, 0)
	got := evaluate(t, kernel.HeadGateGrad{Heads: 2}, x, both, f64s([]float64{1, 1, 2, 0}, 1, 4))
	near(t, "gradient of x", got[0].F64(), []float64{0.5, 0.75, 1.5, 0}, 1e-15)
	near(t, "gradient of both", got[1].F64(), []float64{0, 0, 1, -1.5, 0, 0, 0.75, 0}, 1e-15)
	near(t, "gradient of queries", evaluate(t, kernel.HeadColumnsGrad{Heads: 2, Of: 4, From: 2, Width: 2}, x)[0].F64(), []float64{0, 0, 4, -8, 0, 0, 2, 6}, 0)
}
