package kernel_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// TestExpertUpdate: the update and what is added to are those of the kernels it stands for.
func TestExpertUpdate(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range expertSizes {
		_, _, starts := sorted(t, s[0], s[1], s[2])
		n, e, rank := s[0]*s[1], s[2], 3
		first := kerneltest.Ints(starts, e+1)
		for i := range 4 {
			transB, onto := i%2 == 1, i >= 2
			in, out, v := s[3], s[4], kerneltest.Normal(e*rank, s[4])
			if transB {
				in, out, v = s[4], s[3], kerneltest.Normal(e*s[3], rank)
			}
			low := kernel.ExpertMatMul{Experts: e, TransB: transB, Alpha: 0.75}
			_, parts := expertWeights(t, e, s[3], s[4], "nf4", true)
			for _, base := range []struct {
				kernel kernel.Kernel
				in     []kerneltest.Input
			}{
				{kernel.ExpertMatMul{Experts: e, TransB: transB}, []kerneltest.Input{kerneltest.Normal(e*s[3], s[4]).As(kernel.BF16), first}},
				{kernel.ExpertMatMulNF4{Experts: e, N: s[3], K: s[4], Nested: true, Transposed: !transB}, append([]kerneltest.Input{first}, inputsOf(parts)...)},
			} {
				c := kerneltest.Case{Name: fmt.Sprintf("%v %s transposed %v onto %v", s, base.kernel.Name(), transB, onto), Bound: 1e-6,
					Kernel: kernel.ExpertUpdate{Base: base.kernel, Low: low, Onto: onto}, In: append([]kerneltest.Input{kerneltest.Normal(n, in)}, base.in...)}
				if onto {
					c.In = append(c.In, kerneltest.Normal(n, out))
				}
				c.In = append(c.In, kerneltest.Normal(n, rank), v)
				cases = append(cases, c)
			}
		}
	}
	kerneltest.Run(t, cases...)
}

// TestExpertUpdateMeaning: it is the sum of the two GEMMs.
func TestExpertUpdateMeaning(t *testing.T) {
	_, _, starts := sorted(t, 13, 2, 5)
	drawn := func(seed uint64, shape ...int) kernel.Tensor {
		return tensor32(normal32(seed, shape[0]*shape[1]), shape...)
	}
	x, w, u, v, first := drawn(1, 26, 40), drawn(2, 5*48, 40), drawn(3, 26, 8), drawn(4, 5*48, 8), i32s(starts)
	base, low := kernel.ExpertMatMul{Experts: 5, TransB: true}, kernel.ExpertMatMul{Experts: 5, TransB: true, Alpha: 0.5}
	large, small := evaluate(t, base, x, w, first)[0].F32(), evaluate(t, low, u, v, first)[0].F32()
	for i, got := range evaluate(t, kernel.ExpertUpdate{Base: base, Low: low}, x, w, first, u, v)[0].F32() {
		if want := float64(large[i]) + float64(small[i]); !(math.Abs(float64(got)-want) <= 1e-5) {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
}

func TestExpertUpdateRefuses(t *testing.T) {
	base, low := kernel.ExpertMatMul{Experts: 3, TransB: true}, kernel.ExpertMatMul{Experts: 3, TransB: true, Alpha: 2}
	x, w, first, u, v := kernel.T(kernel.F32, 6, 8), kernel.T(kernel.F32, 15, 8), kernel.T(kernel.I32, 4), kernel.T(kernel.F32, 6, 2), kernel.T(kernel.F32, 15, 2)
	for _, c := range []struct {
		k    kernel.ExpertUpdate
		in   []kernel.Type
		want string
	}{
		{kernel.ExpertUpdate{Base: kernel.Add{}, Low: low}, []kernel.Type{x, w, first, u, v}, "want a GEMM of experts without a factor"},
		{kernel.ExpertUpdate{Base: low, Low: low}, []kernel.Type{x, w, first, u, v}, "want a GEMM of experts without a factor"},
		{kernel.ExpertUpdate{Base: base, Low: low}, []kernel.Type{x, w, first, u}, "takes 5 inputs, got 4"},
		{kernel.ExpertUpdate{Base: base, Low: low, Onto: true}, []kernel.Type{x, w, first, u, v}, "takes 6 inputs, got 5"},
		{kernel.ExpertUpdate{Base: base, Low: low}, []kernel.Type{x, w, first, u, kernel.T(kernel.F32, 12, 2)}, "is added to"},
		{kernel.ExpertUpdate{Base: base, Low: low, Onto: true}, []kernel.Type{x, w, first, kernel.T(kernel.F32, 6, 4), u, v}, "is added to"},
		{kernel.ExpertUpdate{Base: base, Low: low}, []kernel.Type{x, w, first, u, kernel.T(kernel.F32, 15, 3)}, "update:"},
	} {
		if _, err := c.k.Shape(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v of %v: %v, want %q", c.k, c.in, err, c.want)
		}
	}
}
