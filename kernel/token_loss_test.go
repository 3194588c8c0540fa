package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestTokenLoss(t *testing.T) {
	const no = kernel.Untrained
	labels := []int32{3, no, 0, 7, no, 9, 2}
	in := []kerneltest.Input{kerneltest.Uniform(-4, -0.05, len(labels)), kerneltest.Ints(labels, len(labels)),
		kerneltest.Uniform(0.1, 0.5, 1)}
	weights, scaling := kerneltest.Uniform(0, 2, len(labels)), kerneltest.Values([]float64{1, 5, 2}, 3)
	// DFT's gradient is not that of its loss: the factor is held constant. TestTokenLossMeaning has it.
	for _, gamma := range []float64{0, 0.5, 2} {
		k := kernel.TokenLoss{Form: kernel.TokenFocal, Gamma: gamma, Grad: true}
		weighted, plain := k, k
		weighted.Weighted, weighted.Scaled, plain.Grad = true, true, false
		kerneltest.Run(t,
			kerneltest.Case{Name: "focal", Kernel: k, In: in, Bound: 2e-6},
			kerneltest.Case{Name: "focal weighted", Kernel: weighted, In: append(in[:3:3], weights, scaling),
				Bound: 2e-6},
			kerneltest.Case{Name: "focal without gradient", Kernel: plain, In: in, Bound: 2e-6})
	}
}

// TestTokenLossMeaning compares both forms with their definitions, and a certain token's focal gradient with zero.
func TestTokenLossMeaning(t *testing.T) {
	const no, scale = kernel.Untrained, 0.25
	logp, labels, weights := []float64{-0.5, -3, 0, -1.25}, []int32{1, no, 2, 0}, []float64{0.5, 9, 1, 2}
	for _, form := range []kernel.TokenForm{kernel.TokenDFT, kernel.TokenFocal} {
		loss, nll := 0., 0.
		each, d := make([]float64, len(logp)), make([]float64, len(logp))
		for m, l := range logp {
			if labels[m] == no {
				continue
			}
			p := math.Exp(l)
			e, slope := -p*l, -p
			if form == kernel.TokenFocal {
				e, slope = -(1-p)*(1-p)*l, -(1-p)*(1-p)+2*(1-p)*p*l
			}
			each[m], d[m] = weights[m]*e, scale*weights[m]*slope
			loss, nll = loss+scale*each[m], nll-l
		}
		k := kernel.TokenLoss{Form: form, Gamma: 2, Grad: true, Weighted: true}
		out := evaluate(t, k, f64s(logp, 4), i32s(labels), f64s([]float64{scale}, 1), f64s(weights, 4))
		for i, want := range [][]float64{{loss}, d, each, {nll}} {
			near(t, "output", out[i].F64(), want, 1e-15)
		}
	}
	half := kernel.TokenLoss{Form: kernel.TokenFocal, Gamma: 0.5, Grad: true}
	out := evaluate(t, half, f64s([]float64{0}, 1), i32s([]int32{1}), f64s([]float64{1}, 1))
	near(t, "gradient of a certain token", out[1].F64(), []float64{0}, 0)
}

func TestTokenLossRefuses(t *testing.T) {
	in := []kernel.Type{kernel.T(kernel.F32, 3), kernel.T(kernel.I32, 3), kernel.T(kernel.F32, 1)}
	for _, k := range []kernel.TokenLoss{{Form: 2}, {Gamma: -1}, {Gamma: math.NaN()}, {Weighted: true}, {Scaled: true}} {
		if _, err := k.Shape(in); err == nil {
			t.Errorf("%+v is accepted", k)
		}
	}
}
