package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestRMSNorm(t *testing.T) {
	norm := kernel.RMSNorm{Eps: 1e-5}
	kerneltest.Run(t,
		kerneltest.Case{Name: "odd", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(5, 13),
			kerneltest.Normal(13)}, Bound: 2e-7},
		kerneltest.Case{Name: "one", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(1, 1),
			kerneltest.Normal(1)}, Bound: 2e-7},
		kerneltest.Case{Name: "pieces", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(70, 576),
			kerneltest.Normal(576)}, Bound: 2e-7},
		kerneltest.Case{Name: "long", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(3, 5003),
			kerneltest.Normal(5003)}, Bound: 2e-7},
		kerneltest.Case{Name: "bf16", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(6, 40),
			kerneltest.Normal(40).As(kernel.BF16)}, Bound: 2e-7},
		kerneltest.Case{Name: "f16", Kernel: norm, In: []kerneltest.Input{kerneltest.Normal(6, 40),
			kerneltest.Normal(40).As(kernel.F16)}, Bound: 2e-7},
		kerneltest.Case{Name: "plus one", Kernel: kernel.RMSNorm{Eps: 1e-5, PlusOne: true},
			In: []kerneltest.Input{kerneltest.Normal(70, 40), kerneltest.Normal(40).As(kernel.BF16)}, Bound: 2e-7},
		kerneltest.Case{Name: "heads plus one", Kernel: kernel.RMSNorm{Eps: 1e-5, Heads: 2, PlusOne: true},
			In: []kerneltest.Input{kerneltest.Normal(5, 2*16), kerneltest.Normal(16)}, Bound: 2e-7},
		kerneltest.Case{Name: "heads plus one, gradient", Kernel: kernel.RMSNormGrad{Heads: 3, PlusOne: true},
			In: []kerneltest.Input{
				kerneltest.Normal(9, 3*20), kerneltest.Normal(20), kerneltest.Uniform(0.5, 2, 27),
				kerneltest.Normal(9, 3*20)}, Bound: 3e-7},
	)
}

func TestRMSNormGrad(t *testing.T) {
	for _, size := range [][2]int{{5, 13}, {33, 576}, {2, 4100}} {
		m, c := size[0], size[1]
		kerneltest.Run(t, kerneltest.Case{Name: kernel.T(kernel.F32, m, c).String(), Kernel: kernel.RMSNormGrad{},
			In: []kerneltest.Input{
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
			kerneltest.Case{Name: name, Kernel: kernel.RMSNorm{Eps: 1e-5, Heads: h},
				In: []kerneltest.Input{kerneltest.Normal(m, h*d), kerneltest.Normal(d)}, Bound: 3e-7},
			kerneltest.Case{Name: name + " gradient", Kernel: kernel.RMSNormGrad{Heads: h}, In: []kerneltest.Input{
				kerneltest.Normal(m, h*d), kerneltest.Normal(d), kerneltest.Uniform(0.5, 2, m*h),
				kerneltest.Normal(m, h*d)}, Bound: 3e-7},
			kerneltest.Case{Name: name + " gradient, added", Kernel: kernel.RMSNormGradTo{Heads: h},
				In: []kerneltest.Input{
					kerneltest.Normal(m, h*d), kerneltest.Normal(d), kerneltest.Uniform(0.5, 2, m*h),
					kerneltest.Normal(m, h*d), kerneltest.Normal(m, h*d)}, Bound: 1e-6},
			kerneltest.Case{Name: name + " weight's gradient", Kernel: kernel.RMSNormWeightGrad{Heads: h},
				In: []kerneltest.Input{
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
	near(t, "dx", evaluate(t, kernel.RMSNormGrad{Heads: h}, f64s(x, m, h*d), f64s(w, d), f64s(rstd, m*h),
		f64s(dy, m, h*d))[0].F64(),
		evaluate(t, kernel.RMSNormGrad{}, f64s(x, m*h, d), f64s(w, d), f64s(rstd, m*h), f64s(dy, m*h, d))[0].F64(), 0)
	near(t, "dw", evaluate(t, kernel.RMSNormWeightGrad{Heads: h}, f64s(x, m, h*d), f64s(rstd, m*h),
		f64s(dy, m, h*d))[0].F64(),
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

// A weight stored less one gives the numbers of the whole weight, and so does its gradient.
func TestRMSNormPlusOne(t *testing.T) {
	const m, heads, head = 5, 3, 8
	x, dy, w := normal64(1, m*heads*head), normal64(2, m*heads*head), normal64(3, head)
	less := make([]float64, head)
	for i := range w {
		less[i] = w[i] - 1
	}
	whole := evaluate(t, kernel.RMSNorm{Eps: 1e-3, Heads: heads}, f64s(x, m, heads*head), f64s(w, head))
	got := evaluate(t, kernel.RMSNorm{Eps: 1e-3, Heads: heads, PlusOne: true}, f64s(x, m, heads*head), f64s(less, head))
	near(t, "y", got[0].F64(), whole[0].F64(), 1e-14)
	near(t, "rstd", got[1].F64(), whole[1].F64(), 0)
	grad := func(plusOne bool, w []float64) []float64 {
		return evaluate(t, kernel.RMSNormGrad{Heads: heads, PlusOne: plusOne}, f64s(x, m, heads*head), f64s(w, head),
			whole[1], f64s(dy, m, heads*head))[0].F64()
	}
	near(t, "dx", grad(true, less), grad(false, w), 1e-14)
}

func TestRMSNormRefuses(t *testing.T) {
	for _, eps := range []float64{-1, math.NaN()} {
		if _, err := (kernel.RMSNorm{Eps: eps}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 3),
			kernel.T(kernel.F32, 3)}); err == nil {
			t.Errorf("Eps %v is accepted", eps)
		}
	}
	f32 := func(shape ...int) kernel.Type { return kernel.T(kernel.F32, shape...) }
	for _, c := range []struct {
		k    kernel.Kernel
		in   []kernel.Type
		want string
	}{
		{kernel.RMSNorm{}, []kernel.Type{f32(2, 6), f32(3)},
			"input 0 is f32[2,6], want 1 heads of 3 elements, as the weight has"},
		{kernel.RMSNorm{Heads: 4}, []kernel.Type{f32(2, 6), f32(3)},
			"input 0 is f32[2,6], want 4 heads of 3 elements, as the weight has"},
		{kernel.RMSNorm{Heads: -1}, []kernel.Type{f32(2, 6), f32(6)}, "attribute Heads is -1, want zero or more"},
		{kernel.RMSNormGrad{Heads: 2}, []kernel.Type{f32(2, 6), f32(3), f32(2), f32(2, 6)},
			"input 2 is f32[2], want 4 elements, one for each row or head"},
		{kernel.RMSNormWeightGrad{Heads: 4}, []kernel.Type{f32(2, 6), f32(8), f32(2, 6)},
			"input 0 is f32[2,6], want 4 heads of 1 elements, as the weight has"},
		{kernel.RMSNormWeightGrad{Heads: 2}, []kernel.Type{f32(2, 6), f32(2), f32(2, 6)},
			"input 1 is f32[2], want 4 elements, one for each row or head"},
	} {
		if _, err := c.k.Shape(c.in); err == nil || err.Error() != c.want {
			t.Errorf("%#v of %v: %v, want %s", c.k, c.in, err, c.want)
		}
	}
}

func TestRMSNormWeightGrad(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {5, 13}, {33, 576}, {2, 4100}} {
		m, c := size[0], size[1]
		kerneltest.Run(t, kerneltest.Case{Name: kernel.T(kernel.F32, m, c).String(), Kernel: kernel.RMSNormWeightGrad{},
			In: []kerneltest.Input{
				kerneltest.Normal(m, c), kerneltest.Uniform(0.5, 2, m), kerneltest.Normal(m, c),
			}, Bound: 2e-7})
	}
}

// lowBits returns residual low bits of any value: the CPU keeps sums whole and reads none.
func lowBits(rows, cols int) kerneltest.Input {
	b := make([]byte, rows*cols)
	for i := range b {
		b[i] = byte(i * 37)
	}
	return kerneltest.Bytes(b, rows, cols)
}

// TestFusedKernels: what a GPU's plan has in place of a sum and its norm keeps the contract of kernels on the CPU.
func TestFusedKernels(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][2]int{{1, 1}, {3, 17}, {32, 48}} {
		x, r, w := kerneltest.Normal(s[0], s[1]), kerneltest.Normal(s[0], s[1]), kerneltest.Normal(s[1])
		add := func(name string, k kernel.Kernel, in ...kerneltest.Input) {
			cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%s %v", name, s), Kernel: k, In: in, Bound: 1e-6})
		}
		add("sum with low bits", kernel.AddLowBits{}, x, r)
		add("sum of one with low bits", kernel.AddLowBits{Carried: true}, x, r, lowBits(s[0], s[1]))
		add("norm of a sum with low bits", kernel.RMSNormLowBits{Eps: 1e-5}, x, w, lowBits(s[0], s[1]))
		add("sum and norm", kernel.AddRMSNorm{Eps: 1e-5}, x, r, w)
		add("sum with low bits and norm", kernel.AddRMSNorm{Eps: 1e-5, LowBits: true}, x, r, w)
		add("sum of one with low bits and norm", kernel.AddRMSNorm{Eps: 1e-5, LowBits: true, Carried: true}, x, r, w,
			lowBits(s[0], s[1]))
		add("sum and norm, plus one", kernel.AddRMSNorm{Eps: 1e-5, PlusOne: true, LowBits: true}, x, r, w)
		add("norm of a sum with low bits, plus one", kernel.RMSNormLowBits{Eps: 1e-5, PlusOne: true}, x, w,
			lowBits(s[0], s[1]))
		add("gradient of a norm, added, plus one", kernel.RMSNormGradTo{PlusOne: true}, x, w, kerneltest.Normal(s[0]),
			r, x)
		add("gradient of a norm, added", kernel.RMSNormGradTo{}, x, w, kerneltest.Normal(s[0]), r, x)
	}
	kerneltest.Run(t, cases...)
}

// TestFusedKernelsAreTheirParts: the same numbers, bit for bit, as the kernels that they stand for.
func TestFusedKernelsAreTheirParts(t *testing.T) {
	const M, C = 5, 24
	numbers := func(scale float32, shape ...int) kernel.Tensor {
		x := kernel.NewTensor(kernel.T(kernel.F32, shape...), kernel.Alloc(kernel.T(kernel.F32, shape...).Bytes()))
		for i := range x.F32() {
			x.F32()[i] = scale * float32((i*7919)%101-50)
		}
		return x
	}
	x, r, w, low := numbers(.03, M, C), numbers(.01, M, C), numbers(.02, C), tensorOf(make([]byte, M*C))
	low.Shape = []int{M, C}
	sum := apply(t, kernel.Add{}, x, r)[0]
	norm := apply(t, kernel.RMSNorm{Eps: 1e-5}, sum, w)
	same := func(name string, got, want kernel.Tensor) {
		t.Helper()
		if string(got.Bytes()) != string(want.Bytes()) {
			t.Errorf("%s: %v, want %v", name, got.F32(), want.F32())
		}
	}
	plain := apply(t, kernel.AddRMSNorm{Eps: 1e-5}, x, r, w)
	same("sum", plain[0], sum)
	same("norm", plain[1], norm[0])
	same("rstd", plain[2], norm[1])
	kept := apply(t, kernel.AddRMSNorm{Eps: 1e-5, LowBits: true, Carried: true}, x, r, w, low)
	same("sum with low bits", kept[0], sum)
	same("its norm", kept[2], norm[0])
	same("its rstd", kept[3], norm[1])
	for i, b := range kept[1].Bytes() {
		if b != 0x80 { // nothing beyond the stored number
			t.Fatalf("low bits %d are %#x", i, b)
		}
	}
	same("norm of a sum with low bits", apply(t, kernel.RMSNormLowBits{Eps: 1e-5}, sum, w, kept[1])[0], norm[0])
	dy, addend := numbers(.05, M, C), numbers(.04, M, C)
	grad := apply(t, kernel.RMSNormGrad{}, x, w, norm[1], dy)[0]
	want := apply(t, kernel.Add{}, addend, grad)[0]
	same("gradient onto the residual's", apply(t, kernel.RMSNormGradTo{}, x, w, norm[1], dy, addend)[0], want)
}

// angles returns a table of cosines and sines for positions [0,p) of heads of d, and a position for each of m rows.
func angles(m, p, d int) (table, positions kerneltest.Input) {
	v, at := make([]float64, p*d), make([]int32, m)
	for i := range p {
		for j := range d / 2 {
			v[i*d+d/2+j], v[i*d+j] = math.Sincos(float64(i) / float64(1+j))
		}
	}
	for i := range at {
		at[i] = int32((5*i + 1) % p)
	}
	return kerneltest.Values(v, p, d), kerneltest.Ints(at, m)
}

// TestRMSNormRoPE: what a GPU's plan has in place of a norm of heads and their rotation keeps the contract of kernels.
func TestRMSNormRoPE(t *testing.T) {
	for _, c := range []struct{ rows, heads, size int }{{5, 3, 16}, {1, 1, 2}, {9, 4, 128}, {6, 2, 12}} {
		m, h, d := c.rows, c.heads, c.size
		table, positions := angles(m, 7, d)
		name := kernel.T(kernel.F32, m, h, d).String()
		kerneltest.Run(t,
			kerneltest.Case{Name: name, Kernel: kernel.RMSNormRoPE{Norm: kernel.RMSNorm{Eps: 1e-5, Heads: h},
				Rotate: kernel.RoPE{Heads: h}}, In: []kerneltest.Input{
				kerneltest.Normal(m, h*d), kerneltest.Normal(d), table, positions}, Bound: 1e-6},
			kerneltest.Case{Name: name + " gradient", Kernel: kernel.RMSNormRoPEGrad{Norm: kernel.RMSNormGrad{Heads: h},
				Rotate: kernel.RoPE{Heads: h, Inverse: true}}, In: []kerneltest.Input{
				kerneltest.Normal(m, h*d), kerneltest.Normal(d), kerneltest.Uniform(0.5, 2, m*h),
				kerneltest.Normal(m, h*d), table, positions}, Bound: 1e-6},
		)
	}
}
