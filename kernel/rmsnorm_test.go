package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestRMSNorm(t *testing.T) {
	norm := kernel.RMSNorm{Eps: 1e-5}
	kerneltest.Run(t,
		kerneltest.Case{Name: "odd", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(5, 13), kerneltest.Normal(13)}, Bound: 2e-7},
		kerneltest.Case{Name: "one", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(1, 1), kerneltest.Normal(1)}, Bound: 2e-7},
		kerneltest.Case{Name: "pieces", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(70, 576), kerneltest.Normal(576)}, Bound: 2e-7},
		kerneltest.Case{Name: "long", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(3, 5003), kerneltest.Normal(5003)}, Bound: 2e-7},
		kerneltest.Case{Name: "bf16", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(6, 40), kerneltest.Normal(40).As(kernel.BF16)}, Bound: 2e-7},
		kerneltest.Case{Name: "f16", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(6, 40), kerneltest.Normal(40).As(kernel.F16)}, Bound: 2e-7},
	)
}

func TestRMSNormGrad(t *testing.T) {
	for _, size := range [][2]int{{5, 13}, {33, 576}, {2, 4100}} {
		m, c := size[0], size[1]
		kerneltest.Run(t, kerneltest.Case{Name: kernel.T(kernel.F32, m, c).String(), Kernel: kernel.RMSNormGrad{}, In: []kerneltest.Input{
			kerneltest.Normal(m, c), kerneltest.Normal(c), kerneltest.Uniform(0.5, 2, m), kerneltest.Normal(m, c),
		}, Bound: 2e-7})
	}
}

// The formula as it stands in the paper, row by row.
func TestRMSNormMeaning(t *testing.T) {
	const m, c, eps = 4, 37, 0.25
	x, w := normal64(1, m*c), normal64(2, c)
	out := evaluate(t, kernel.RMSNorm{Eps: eps}, f64s(x, m, c), f64s(w, c))
	y, rstd := make([]float64, m*c), make([]float64, m)
	for i := range m {
		mean := 0.0
		for _, v := range x[i*c:][:c] {
			mean += v * v / c
		}
		rstd[i] = 1 / math.Sqrt(mean+eps)
		for j := range c {
			y[i*c+j] = w[j] * x[i*c+j] * rstd[i]
		}
	}
	near(t, "y", out[0].F64(), y, 1e-14)
	near(t, "rstd", out[1].F64(), rstd, 1e-15)
}

func TestRMSNormRefuses(t *testing.T) {
	for _, eps := range []float64{-1, math.NaN()} {
		if _, err := (kernel.RMSNorm{Eps: eps}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 3), kernel.T(kernel.F32, 3)}); err == nil {
			t.Errorf("Eps %v is accepted", eps)
		}
	}
}
