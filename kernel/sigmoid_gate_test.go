package kernel_test

import (
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestSigmoidGate(t *testing.T) {
	for _, size := range [][]int{{3, 7}, {1, 1}, {8, 172}, {13, 700}} {
		x, gate := kerneltest.Normal(size...), kerneltest.Normal(size[0], 1)
		kerneltest.Run(t,
			kerneltest.Case{Name: "forward " + kernel.T(kernel.F32, size...).String(), Kernel: kernel.SigmoidGate{},
				In: []kerneltest.Input{x, gate}, Bound: 2.5e-7},
			kerneltest.Case{Name: "backward " + kernel.T(kernel.F32, size...).String(),
				Kernel: kernel.SigmoidGateGrad{}, In: []kerneltest.Input{x, gate, x}, Bound: 2.5e-7},
		)
	}
}

// A gate of 0 lets a half through, one of ln 3 three quarters.
func TestSigmoidGateMeaning(t *testing.T) {
	x, gate := f64s([]float64{4, -8, 4, -8}, 2, 2), f64s([]float64{0, 1.0986122886681098}, 2, 1)
	near(t, "gated", evaluate(t, kernel.SigmoidGate{}, x, gate)[0].F64(), []float64{2, -4, 3, -6}, 1e-15)
	got := evaluate(t, kernel.SigmoidGateGrad{}, x, gate, f64s([]float64{1, 1, 2, 0}, 2, 2))
	near(t, "gradient of x", got[0].F64(), []float64{0.5, 0.5, 1.5, 0}, 1e-15)
	near(t, "gradient of the gate", got[1].F64(), []float64{-1, 1.5}, 1e-15)
}
