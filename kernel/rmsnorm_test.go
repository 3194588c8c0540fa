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

// Heads are normed each by itself: Qwen3's of 128, one of a single element, none but one, of an odd size.
func TestRMSNormHeads(t *testing.T) {
	for _, c := range []struct{ rows, heads, size int }{{5, 3, 12}, {9, 4, 128}, {1, 7, 1}, {40, 1, 16}, {3, 2, 13}} {
		m, h, d := c.rows, c.heads, c.size
		name := kernel.T(kernel.F32, m, h, d).String()
		kerneltest.Run(t,
			kerneltest.Case{Name: name, Kernel: kernel.RMSNorm{Eps: 1e-5, Heads: h}, In: []kerneltest.Input{kerneltest.Normal(m, h*d), kerneltest.Normal(d)}, Bound: 3e-7},
			kerneltest.Case{Name: name + " gradient", Kernel: kernel.RMSNormGrad{Heads: h}, In: []kerneltest.Input{
				kerneltest.Normal(m, h*d), kerneltest.Normal(d), kerneltest.Uniform(0.5, 2, m*h), kerneltest.Normal(m, h*d)}, Bound: 3e-7},
			kerneltest.Case{Name: name + " gradient, added", Kernel: kernel.RMSNormGradTo{Heads: h}, In: []kerneltest.Input{
				kerneltest.Normal(m, h*d), kerneltest.Normal(d), kerneltest.Uniform(0.5, 2, m*h), kerneltest.Normal(m, h*d), kerneltest.Normal(m, h*d)}, Bound: 1e-6},
			kerneltest.Case{Name: name + " weight's gradient", Kernel: kernel.RMSNormWeightGrad{Heads: h}, In: []kerneltest.Input{
				kerneltest.Normal(m, h*d), kerneltest.Uniform(0.5, 2, m*h), kerneltest.Normal(m, h*d)}, Bound: 3e-7},
		)
	}
}

// TestRMSNormHeadsAreRows: heads in a row are what they are as rows of their own, bit for bit.
func TestRMSNormHeadsAreRows(t *testing.T) {
	const m, h, d, eps = 6, 3, 20, 1e-5
	x, w, dy := normal64(1, m*h*d), normal64(2, d), normal64(3, m*h*d)
	heads := evaluate(t, kernel.RMSNorm{Eps: eps, Heads: h}, f64s(x, m, h*d), f64s(w, d))
	rows := evaluate(t, kernel.RMSNorm{Eps: eps}, f64s(x, m*h, d), f64s(w, d))
	near(t, "y", heads[0].F64(), rows[0].F64(), 0)
	near(t, "rstd", heads[1].F64(), rows[1].F64(), 0)
	rstd := rows[1].F64()
	near(t, "dx", evaluate(t, kernel.RMSNormGrad{Heads: h}, f64s(x, m, h*d), f64s(w, d), f64s(rstd, m*h), f64s(dy, m, h*d))[0].F64(),
		evaluate(t, kernel.RMSNormGrad{}, f64s(x, m*h, d), f64s(w, d), f64s(rstd, m*h), f64s(dy, m*h, d))[0].F64(), 0)
	near(t, "dw", evaluate(t, kernel.RMSNormWeightGrad{Heads: h}, f64s(x, m, h*d), f64s(rstd, m*h), f64s(dy, m, h*d))[0].F64(),
		evaluate(t, kernel.RMSNormWeightGrad{}, f64s(x, m*h, d), f64s(rstd, m*h), f64s(dy, m*h, d))[0].F64(), 0)
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
	f32 := func(shape ...int) kernel.Type { return kernel.T(kernel.F32, shape...) }
	for _, c := range []struct {
		k    kernel.Kernel
		in   []kernel.Type
		want string
	}{
		{kernel.RMSNorm{}, []kernel.Type{f32(2, 6), f32(3)}, "input 0 is f32[2,6], want 1 heads of 3 elements, as the weight has"},
		{kernel.RMSNorm{Heads: 4}, []kernel.Type{f32(2, 6), f32(3)}, "input 0 is f32[2,6], want 4 heads of 3 elements, as the weight has"},
		{kernel.RMSNorm{Heads: -1}, []kernel.Type{f32(2, 6), f32(6)}, "attribute Heads is -1, want zero or more"},
		{kernel.RMSNormGrad{Heads: 2}, []kernel.Type{f32(2, 6), f32(3), f32(2), f32(2, 6)}, "input 2 is f32[2], want 4 elements, one for each row or head"},
		{kernel.RMSNormWeightGrad{Heads: 4}, []kernel.Type{f32(2, 6), f32(8), f32(2, 6)}, "input 0 is f32[2,6], want 4 heads of 1 elements, as the weight has"},
		{kernel.RMSNormWeightGrad{Heads: 2}, []kernel.Type{f32(2, 6), f32(2), f32(2, 6)}, "input 1 is f32[2], want 4 elements, one for each row or head"},
	} {
		if _, err := c.k.Shape(c.in); err == nil || err.Error() != c.want {
			t.Errorf("%#v of %v: %v, want %s", c.k, c.in, err, c.want)
		}
	}
}
