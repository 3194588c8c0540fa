package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// evaluate runs a kernel on two threads and returns its outputs.
func evaluate(t testing.TB, k kernel.Kernel, in ...kernel.Tensor) []kernel.Tensor {
	t.Helper()
	out, work := bound(t, k, 2, in...)
	work()
	return out
}

// bound gives a kernel memory, that of an input where it overwrites one, and returns its outputs and the work of a run.
func bound(t testing.TB, k kernel.Kernel, workers int, in ...kernel.Tensor) ([]kernel.Tensor, func()) {
	t.Helper()
	types := make([]kernel.Type, len(in))
	for i, x := range in {
		types[i] = x.Type
	}
	outTypes, err := k.Shape(types)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]kernel.Tensor, len(outTypes))
	for i, typ := range outTypes {
		out[i] = kernel.NewTensor(typ, kernel.Alloc(typ.Bytes()))
	}
	if o, ok := k.(kernel.Overwriting); ok {
		for _, a := range o.Overwrites() {
			out[a.Out] = in[a.In]
		}
	}
	c := kernel.NewCPU(workers)
	t.Cleanup(c.Pool.Close)
	if s, ok := k.(kernel.Scratch); ok {
		c.Scratch = kernel.Alloc(s.Scratch(types, c.Workers()))
		for i := range c.Scratch { // a kernel must not read what it has not written
			c.Scratch[i] = 0xff
		}
	}
	return out, k.CPU(c, in, out)
}

// f64s, f32s and i32s make tensors of given elements.
func f64s(v []float64, shape ...int) kernel.Tensor {
	x := zeros(kernel.F64, shape...)
	copy(x.F64(), v)
	return x
}

func f32s(v []float32, shape ...int) kernel.Tensor {
	x := zeros(kernel.F32, shape...)
	copy(x.F32(), v)
	return x
}

// i32s returns numbers as a tensor, a list where no shape is given.
func i32s(v []int32, shape ...int) kernel.Tensor {
	if shape == nil {
		shape = []int{len(v)}
	}
	x := zeros(kernel.I32, shape...)
	copy(x.I32(), v)
	return x
}

func zeros(d kernel.DType, shape ...int) kernel.Tensor {
	t := kernel.T(d, shape...)
	return kernel.NewTensor(t, kernel.Alloc(t.Bytes()))
}

// normal64 and normal32 are n standard normal numbers.
func normal64(seed uint64, n int) []float64 {
	r := rand.New(rand.NewPCG(seed, 7))
	v := make([]float64, n)
	for i := range v {
		v[i] = r.NormFloat64()
	}
	return v
}

func normal32(seed uint64, n int) []float32 {
	v := make([]float32, n)
	for i, x := range normal64(seed, n) {
		v[i] = float32(x)
	}
	return v
}

// near demands that every element is within bound of what is wanted, NaN where it is NaN.
func near(t testing.TB, what string, got, want []float64, bound float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		if math.IsNaN(w) && math.IsNaN(got[i]) {
			continue
		}
		if d := math.Abs(got[i] - w); got[i] != w && !(d <= bound) {
			t.Fatalf("%s: element %d is %v, want %v (%.1e apart, allowed %.1e)", what, i, got[i], w, d, bound)
		}
	}
}
