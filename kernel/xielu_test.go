package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestXIELU(t *testing.T) {
	one, beta := kerneltest.Normal(1), kerneltest.Values([]float64{0.5}, 1)
	eps := kerneltest.Values([]float64{-1e-6}, 1)
	for _, s := range [][2]int{{1, 1}, {7, 24}, {33, 130}} {
		x := kerneltest.Normal(s[0], s[1])
		kerneltest.Run(t, kerneltest.Case{Name: "xielu", Kernel: kernel.XIELU{}, Bound: 2.5e-7,
			In: []kerneltest.Input{x, one, one, beta, eps}},
			kerneltest.Case{Name: "xielu backward", Kernel: kernel.XIELUGrad{}, Bound: 2.5e-7,
				In: []kerneltest.Input{x, one, one, beta, eps, x}})
	}
}

// TestXIELUMeaning: with learnt numbers of ln(e-1), whose softplus is 1, beta 0.5 and the eps of released models.
func TestXIELUMeaning(t *testing.T) {
	n, beta, eps := f64s([]float64{math.Log(math.E - 1)}, 1), f64s([]float64{0.5}, 1), f64s([]float64{-1e-6}, 1)
	x := f64s([]float64{2, 0, -1}, 1, 3)
	near(t, "values", evaluate(t, kernel.XIELU{}, x, n, n, beta, eps)[0].F64(),
		[]float64{5, 1.5 * math.Expm1(-1e-6), 1.5*math.Exp(-1) - 0.5}, 1e-15)
	near(t, "slopes", evaluate(t, kernel.XIELUGrad{}, x, n, n, beta, eps, f64s([]float64{1, 1, 2}, 1, 3))[0].F64(),
		[]float64{4.5, -1, 2 * (1.5*math.Expm1(-1) + 0.5)}, 1e-15)
}
