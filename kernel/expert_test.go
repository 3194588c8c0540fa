package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/quant"
)

// expertSizes are tokens, slots, experts, and a matrix's two sizes.
var expertSizes = [][5]int{{1, 1, 1, 1, 1}, {3, 2, 4, 5, 7}, {9, 2, 3, 64, 33}, {40, 4, 7, 24, 130}}

func TestExpertMatMul(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range expertSizes {
		_, _, starts := sorted(t, s[0], s[1], s[2])
		n, e := s[0]*s[1], s[2]
		first := kerneltest.Ints(starts, e+1)
		for _, stored := range []kernel.DType{0, kernel.BF16} {
			for _, transB := range []bool{false, true} {
				w, k := kerneltest.Normal(e*s[3], s[4]), kernel.ExpertMatMul{Experts: e, TransB: transB, Alpha: 0.5}
				if stored != 0 {
					w = w.As(stored)
				}
				width := s[3]
				if transB {
					width = s[4]
				}
				cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%v stored %v transposed %v", s, stored, transB), Kernel: k, Bound: 1e-6,
					In: []kerneltest.Input{kerneltest.Normal(n, width), w, first}})
			}
		}
		cases = append(cases, kerneltest.Case{Name: fmt.Sprint(s, " gradient"), Kernel: kernel.ExpertWeightGrad{Experts: e}, Bound: 1e-6,
			In: []kerneltest.Input{kerneltest.Normal(n, s[3]), kerneltest.Normal(n, s[4]), first}})
	}
	kerneltest.Run(t, cases...)
	x, starts := kernel.T(kernel.F32, 6, 8), kernel.T(kernel.I32, 4)
	for what, in := range map[string][]kernel.Type{
		"rows of no expert": {x, kernel.T(kernel.F32, 25, 8), starts},
		"other depth":       {x, kernel.T(kernel.F32, 24, 9), starts},
		"other starts":      {x, kernel.T(kernel.F32, 24, 8), kernel.T(kernel.I32, 3)},
	} {
		if _, err := (kernel.ExpertMatMul{Experts: 3, TransB: true}).Shape(in); err == nil {
			t.Errorf("%s: %v is accepted", what, in)
		}
	}
}

// expertWeights are matrices in NF4, each by itself, and their parts one after the other.
func expertWeights(t testing.TB, experts, n, k int, nested bool) (each []quant.Packed, parts []kernel.Tensor) {
	t.Helper()
	for e := range experts {
		w := normal32(uint64(e+1), n*k)
		p, err := quant.Quantise(w, n, k, quant.Config{Bits: 4, Type: "nf4", BlockSize: 64, DoubleQuant: nested})
		if err != nil {
			t.Fatal(err)
		}
		each = append(each, p)
	}
	for i, first := range packedTensors(each[0]) {
		var raw []byte
		for _, p := range each {
			raw = append(raw, packedTensors(p)[i].Bytes()...)
		}
		x := zeros(first.DType, experts*first.Elems())
		copy(x.Bytes(), raw)
		parts = append(parts, x)
	}
	return each, parts
}

func TestExpertMatMulNF4(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range expertSizes {
		_, _, starts := sorted(t, s[0], s[1], s[2])
		for _, k := range []kernel.ExpertMatMulNF4{{}, {Nested: true}, {Transposed: true}, {Nested: true, Transposed: true}} {
			k.Experts, k.N, k.K = s[2], s[3], s[4]
			width := k.K
			if k.Transposed {
				width = k.N
			}
			_, parts := expertWeights(t, k.Experts, k.N, k.K, k.Nested)
			cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%v nested %v transposed %v", s, k.Nested, k.Transposed), Kernel: k, Bound: 1e-6,
				In: append([]kerneltest.Input{kerneltest.Normal(s[0]*s[1], width), kerneltest.Ints(starts, k.Experts+1)}, inputsOf(parts)...)})
		}
	}
	kerneltest.Run(t, cases...)
}

// TestExpertMatMulNF4Meaning: each expert's rows are what MatMulNF4 makes of them, to the bit.
func TestExpertMatMulNF4Meaning(t *testing.T) {
	const tokens, slots, experts, n, k = 13, 2, 5, 48, 40
	_, _, starts := sorted(t, tokens, slots, experts)
	for _, nested := range []bool{false, true} {
		each, parts := expertWeights(t, experts, n, k, nested)
		x := f32s(normal32(3, tokens*slots*k), tokens*slots, k)
		in := append([]kernel.Tensor{x, i32s(starts)}, parts...)
		all := evaluate(t, kernel.ExpertMatMulNF4{Experts: experts, N: n, K: k, Nested: nested}, in...)[0].F32()
		for e := range experts {
			from, to := int(starts[e]), int(starts[e+1])
			if from == to {
				continue
			}
			own := append([]kernel.Tensor{f32s(x.F32()[from*k:to*k], to-from, k)}, packedTensors(each[e])...)
			want := evaluate(t, kernel.MatMulNF4{N: n, K: k, Nested: nested}, own...)[0].F32()
			for i, w := range want {
				if got := all[from*n+i]; got != w {
					t.Fatalf("nested %v, expert %d: element %d is %v, alone %v", nested, e, i, got, w)
				}
			}
		}
	}
}
