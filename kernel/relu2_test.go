package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestReLU2(t *testing.T) {
	for _, size := range [][]int{{3, 7}, {13, 700}} {
		x := kerneltest.Normal(size...)
		kerneltest.Run(t,
			kerneltest.Case{Name: "forward " + kernel.T(kernel.F32, size...).String(), Kernel: kernel.ReLU2{},
				In: []kerneltest.Input{x}, Bound: 2.5e-7},
			kerneltest.Case{Name: "backward " + kernel.T(kernel.F32, size...).String(), Kernel: kernel.ReLU2Grad{},
				In: []kerneltest.Input{x, x}, Bound: 2.5e-7},
		)
	}
	// torch's relu(x).square() and its gradient for ones
	x := []float64{-2, math.Copysign(0, -1), 0, 0.5, 3, math.Inf(1)}
	near(t, "forward", evaluate(t, kernel.ReLU2{}, f64s(x, 1, 6))[0].F64(), []float64{0, 0, 0, 0.25, 9, math.Inf(1)}, 0)
	one := f64s([]float64{1, 1, 1, 1, 1, 1}, 1, 6)
	near(t, "gradient", evaluate(t, kernel.ReLU2Grad{}, f64s(x, 1, 6), one)[0].F64(),
		[]float64{0, 0, 0, 1, 6, math.Inf(1)}, 0)
	if y := evaluate(t, kernel.ReLU2{}, f64s([]float64{math.NaN()}, 1, 1))[0].F64()[0]; !math.IsNaN(y) {
		t.Errorf("the activation of NaN is %v", y)
	}
}
