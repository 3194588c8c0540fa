package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func operand(trans bool, rows, cols int) kerneltest.Input {
	if trans {
		rows, cols = cols, rows
	}
	return kerneltest.Normal(rows, cols)
}

func TestMatMul(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][3]int{{1, 1, 1}, {3, 5, 7}, {17, 9, 33}, {2, 67, 130}, {20, 40, 401}, {20, 401, 37}} {
		for _, k := range []kernel.MatMul{{}, {TransA: true}, {TransB: true, Alpha: 0.25},
			{TransA: true, TransB: true, Alpha: -1.5}} {
			cases = append(cases, kerneltest.Case{
				Name: fmt.Sprintf("%v %+v", s, k), Kernel: k, Bound: 1e-6,
				In: []kerneltest.Input{operand(k.TransA, s[0], s[2]), operand(k.TransB, s[2], s[1])},
			})
		}
	}
	for _, d := range []kernel.DType{kernel.F32, kernel.F64, kernel.BF16, kernel.F16} {
		for _, k := range []kernel.MatMul{{Alpha: 2}, {TransB: true}} {
			for _, s := range [][3]int{{5, 67, 131}, {33, 130, 9}, {1, 4, 1}} {
				cases = append(cases, kerneltest.Case{
					Name: fmt.Sprintf("%v frozen %v %+v", s, d, k), Kernel: k, Bound: 1e-6,
					In: []kerneltest.Input{kerneltest.Normal(s[0], s[2]), operand(k.TransB, s[2], s[1]).As(d)},
				})
			}
		}
	}
	cases[0].Rejects = map[string][]kernel.Type{
		"inner sizes differ": {kernel.T(kernel.F32, 2, 3), kernel.T(kernel.F32, 4, 2)},
		"a in bf16":          {kernel.T(kernel.BF16, 2, 3), kernel.T(kernel.F32, 3, 2)},
	}
	kerneltest.Run(t, cases...)

	stored := []kernel.Type{kernel.T(kernel.F32, 3, 2), kernel.T(kernel.BF16, 3, 4)}
	if _, err := (kernel.MatMul{TransA: true}).Shape(stored); err == nil {
		t.Errorf("a transposed first input with %v is accepted", stored[1])
	}
}

// The GEMM against the formula, so that all forms are not wrong together.
func TestMatMulFormula(t *testing.T) {
	for _, k := range []kernel.MatMul{{}, {TransA: true}, {TransB: true}, {TransA: true, TransB: true, Alpha: 3}} {
		const m, n, depth = 4, 3, 5
		at := func(x []float64, trans bool, rows, cols, i, j int) float64 {
			if trans {
				return x[j*rows+i]
			}
			return x[i*cols+j]
		}
		a, b := make([]float64, m*depth), make([]float64, depth*n)
		for i := range a {
			a[i] = float64(i%7) - 2.5
		}
		for i := range b {
			b[i] = float64(i%5) + 0.25
		}
		ta, tb := kernel.T(kernel.F64, m, depth), kernel.T(kernel.F64, depth, n)
		if k.TransA {
			ta = kernel.T(kernel.F64, depth, m)
		}
		if k.TransB {
			tb = kernel.T(kernel.F64, n, depth)
		}
		y := apply(t, k, tensor64(ta, a), tensor64(tb, b))[0].F64()
		for i := range m {
			for j := range n {
				want := 0.0
				for p := range depth {
					want += at(a, k.TransA, m, depth, i, p) * at(b, k.TransB, depth, n, p, j)
				}
				if k.Alpha != 0 {
					want *= k.Alpha
				}
				if math.Abs(y[i*n+j]-want) > 1e-12 {
					t.Errorf("%+v: y[%d,%d] = %v, want %v", k, i, j, y[i*n+j], want)
				}
			}
		}
	}
}

func tensor64(t kernel.Type, v []float64) kernel.Tensor {
	x := kernel.NewTensor(t, kernel.Alloc(t.Bytes()))
	copy(x.F64(), v)
	return x
}

func tensor32(v []float32, shape ...int) kernel.Tensor {
	t := kernel.T(kernel.F32, shape...)
	x := kernel.NewTensor(t, kernel.Alloc(t.Bytes()))
	copy(x.F32(), v)
	return x
}

func tensorOf[E int32 | byte](v []E) kernel.Tensor {
	switch v := any(v).(type) {
	case []int32:
		x := kernel.NewTensor(kernel.T(kernel.I32, len(v)), kernel.Alloc(int64(4*len(v))))
		copy(x.I32(), v)
		return x
	case []byte:
		return kernel.NewTensor(kernel.T(kernel.U8, len(v)), v)
	}
	return kernel.Tensor{}
}

// work binds a kernel to inputs and fresh outputs.
func work(t testing.TB, workers int, k kernel.Kernel, in ...kernel.Tensor) (func(), []kernel.Tensor) {
	t.Helper()
	out, work := bound(t, k, workers, in...)
	return work, out
}

// apply runs a kernel once.
func apply(t testing.TB, k kernel.Kernel, in ...kernel.Tensor) []kernel.Tensor {
	t.Helper()
	run, out := work(t, 1, k, in...)
	run()
	return out
}

func TestMatMulEach(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][3]int{{1, 1, 1}, {5, 8, 67}, {33, 16, 40}} { // M, R, C
		for _, n := range []int{1, 2, 3} {
			for _, k := range []kernel.GroupedMatMul{{N: n, TransB: true, Alpha: 0.5}, {N: n},
				{N: n, TransA: true, Alpha: 2}} {
				in, addends := []kerneltest.Input{kerneltest.Normal(s[0], s[2])}, []kerneltest.Input{}
				for range n {
					if k.TransA {
						in, addends = append(in, kerneltest.Normal(s[0], s[1])),
							append(addends, kerneltest.Normal(s[1], s[2]))
					} else {
						in, addends = append(in, operand(k.TransB, s[2], s[1])),
							append(addends, kerneltest.Normal(s[0], s[1]))
					}
				}
				cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%v %+v", s, k), Kernel: k, Bound: 1e-6,
					In: in},
					kerneltest.Case{Name: fmt.Sprintf("%v %+v onto", s, k),
						Kernel: kernel.Onto[kernel.GroupedMatMul]{Of: k}, Bound: 1e-6,
						In: append(in[:1+n:1+n], addends...)})
			}
		}
	}
	one := kernel.T(kernel.F32, 2, 3)
	cases[0].Rejects = map[string][]kernel.Type{"nothing to multiply by": {one},
		"inner sizes differ": {one, kernel.T(kernel.F32, 4, 2)}}
	cases[1].Rejects = map[string][]kernel.Type{"no addend": {one, one}, "another addend": {one, one, one}}
	kerneltest.Run(t, cases...)
}

func TestMatMulSum(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][3]int{{1, 1, 1}, {5, 8, 67}, {33, 16, 40}} {
		for _, n := range []int{1, 2, 3} {
			for _, k := range []kernel.MatMulSum{{N: n, TransB: true, Alpha: 0.5}, {N: n}} {
				var in []kerneltest.Input
				for range n {
					in = append(in, kerneltest.Normal(s[0], s[1]), operand(k.TransB, s[1], s[2]))
				}
				cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%v %+v", s, k), Kernel: k, Bound: 1e-6,
					In: in},
					kerneltest.Case{Name: fmt.Sprintf("%v %+v onto", s, k),
						Kernel: kernel.Onto[kernel.MatMulSum]{Of: k}, Bound: 1e-6,
						In: append(in[:2*n:2*n], kerneltest.Normal(s[0], s[2]))})
			}
		}
	}
	a := kernel.T(kernel.F32, 2, 3)
	cases[0].Rejects = map[string][]kernel.Type{"half a pair": {a},
		"inner sizes differ": {a, kernel.T(kernel.F32, 2, 4)}}
	kerneltest.Run(t, cases...)
}

func TestMatMulGrads(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][3]int{{1, 1, 1}, {67, 5, 8}, {33, 40, 16}} {
		M, C, R := s[0], s[1], s[2]
		cases = append(cases, kerneltest.Case{Name: fmt.Sprint(s), Kernel: kernel.MatMulGrads{Alpha: 0.5}, Bound: 1e-6,
			In: []kerneltest.Input{kerneltest.Normal(M, C), operand(false, C, R), kerneltest.Normal(M, R),
				kerneltest.Normal(C, R)}})
	}
	dy, b, narrow := kernel.T(kernel.F32, 2, 3), kernel.T(kernel.F32, 3, 4), kernel.T(kernel.F32, 2, 4)
	cases[0].Rejects = map[string][]kernel.Type{"no addend": {dy, b, narrow},
		"t is not as dt":     {dy, b, kernel.T(kernel.F32, 2, 5), kernel.T(kernel.F32, 3, 5)},
		"inner sizes differ": {dy, narrow, narrow, b},
		"the addend's sizes": {dy, b, narrow, narrow}}
	kerneltest.Run(t, cases...)
}

// The grouped GEMMs are the single ones, to the bit.
func TestGroupedProductsEqualSingleOnes(t *testing.T) {
	c := kernel.NewCPU(2)
	fill := func(n int, shape ...int) kernel.Tensor {
		x := kernel.NewTensor(kernel.T(kernel.F32, shape...), kernel.Alloc(kernel.T(kernel.F32, shape...).Bytes()))
		for i := range x.F32() {
			x.F32()[i] = float32((i*7+n*13)%23-11) / 8
		}
		return x
	}
	const m, r, wide = 9, 8, 40
	x, a, b, t1, t2 := fill(0, m, wide), fill(1, r, wide), fill(2, r, wide), fill(3, m, r), fill(4, m, r)
	equal := func(what string, got, want kernel.Tensor) {
		t.Helper()
		for i, v := range want.F32() {
			if got.F32()[i] != v {
				t.Errorf("%s: element %d is %v, want %v", what, i, got.F32()[i], v)
				return
			}
		}
	}
	y1, y2, w1, w2 := fill(5, m, r), fill(6, m, r), fill(7, m, r), fill(8, m, r)
	kernel.GroupedMatMul{N: 2, TransB: true}.CPU(c, []kernel.Tensor{x, a, b}, []kernel.Tensor{y1, y2})()
	kernel.MatMul{TransB: true}.CPU(c, []kernel.Tensor{x, a}, []kernel.Tensor{w1})()
	kernel.MatMul{TransB: true}.CPU(c, []kernel.Tensor{x, b}, []kernel.Tensor{w2})()
	equal("x aᵀ", y1, w1)
	equal("x bᵀ", y2, w2)
	g1, g2, h1, h2 := fill(5, r, wide), fill(6, r, wide), fill(5, r, wide), fill(6, r, wide)
	kernel.Onto[kernel.GroupedMatMul]{Of: kernel.GroupedMatMul{N: 2, TransA: true, Alpha: 3}}.CPU(c,
		[]kernel.Tensor{x, t1, t2, g1, g2}, []kernel.Tensor{g1, g2})()
	kernel.Onto[kernel.MatMul]{Of: kernel.MatMul{TransA: true, Alpha: 3}}.CPU(c, []kernel.Tensor{t1, x, h1},
		[]kernel.Tensor{h1})()
	kernel.Onto[kernel.MatMul]{Of: kernel.MatMul{TransA: true, Alpha: 3}}.CPU(c, []kernel.Tensor{t2, x, h2},
		[]kernel.Tensor{h2})()
	equal("t1ᵀ x", g1, h1)
	equal("t2ᵀ x", g2, h2)
	s, p := fill(9, m, wide), fill(9, m, wide)
	kernel.Onto[kernel.MatMulSum]{Of: kernel.MatMulSum{N: 2}}.CPU(c, []kernel.Tensor{t1, a, t2, b, s},
		[]kernel.Tensor{s})()
	kernel.Onto[kernel.MatMul]{}.CPU(c, []kernel.Tensor{t1, a, p}, []kernel.Tensor{p})()
	kernel.Onto[kernel.MatMul]{}.CPU(c, []kernel.Tensor{t2, b, p}, []kernel.Tensor{p})()
	equal("t1 a + t2 b", s, p)
}
