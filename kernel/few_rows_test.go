package kernel_test

import (
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// TestRoPEAppend: the bits of two rotations and two caches.
func TestRoPEAppend(t *testing.T) {
	const M, H, K, D, R, P, W = 3, 4, 2, 8, 6, 5, 16
	q, k, v, table := f32s(normal32(1, M*H*D), M, H*D), f32s(normal32(2, M*K*D), M, K*D), f32s(normal32(3, M*W), M, W),
		f32s(normal32(4, 9*R), 9, R)
	keys, values, positions, at := f32s(normal32(5, P*K*D), P, K*D), f32s(normal32(6, P*W), P, W),
		i32s([]int32{8, 0, 3}), i32s([]int32{4, -1, 1})
	wantQ := slices.Clone(evaluate(t, kernel.RoPE{Heads: H, HeadDim: D}, q, table, positions)[0].F32())
	turned := evaluate(t, kernel.RoPE{Heads: K, HeadDim: D}, k, table, positions)[0]
	wantK := slices.Clone(evaluate(t, kernel.KVAppend{}, keys, turned, at)[0].F32())
	wantV := slices.Clone(evaluate(t, kernel.KVAppend{}, values, v, at)[0].F32())
	got := evaluate(t, kernel.RoPEAppend{Heads: H, KVHeads: K, HeadDim: D}, q, k, v, table, positions, keys, values, at)
	for i, want := range [][]float32{wantQ, wantK, wantV} {
		if !slices.Equal(got[i].F32(), want) {
			t.Errorf("output %d differs", i)
		}
	}
}

// TestNewFewRows: which GEMMs go together.
func TestNewFewRows(t *testing.T) {
	mul, nf4 := kernel.MatMul{TransB: true, RowsApart: true},
		kernel.MatMulNF4{N: 8, K: 64, Nested: true, RowsApart: true}
	wider, plain, wide, cuda := nf4, nf4, mul, nf4
	wider.N, plain.Nested, wide.FP32Out, cuda.Map = 24, false, true, quant.MapCUDA
	for _, c := range []struct {
		parts    []kernel.Kernel
		gated    bool
		m, k     int
		together bool
	}{
		{[]kernel.Kernel{mul, mul}, true, 1, 64, true}, {[]kernel.Kernel{mul, mul, mul}, false, 256, 8, true},
		{[]kernel.Kernel{nf4, wider}, false, 1, 64, true},
		{[]kernel.Kernel{mul}, false, 1, 64, false}, {[]kernel.Kernel{mul, mul, mul, mul}, false, 1, 64, false},
		{[]kernel.Kernel{mul, mul, mul}, true, 1, 64, false},
		{[]kernel.Kernel{mul, mul}, false, 257, 64, false}, {[]kernel.Kernel{mul, mul}, false, 1, 60, false},
		{[]kernel.Kernel{mul, nf4}, false, 1, 64, false},
		{[]kernel.Kernel{nf4, plain}, false, 1, 64, false}, {[]kernel.Kernel{nf4, cuda}, false, 1, 64, false},
		{[]kernel.Kernel{wide, wide}, false, 1, 64, false},
		{[]kernel.Kernel{kernel.MatMul{TransB: true}, kernel.MatMul{TransB: true}}, false, 1, 64, false},
		{[]kernel.Kernel{kernel.SwiGLU{}, kernel.SwiGLU{}}, false, 1, 64, false},
	} {
		in := []kernel.Type{kernel.T(kernel.F32, c.m, c.k), kernel.T(kernel.F32, 8, c.k)}
		if _, ok := kernel.NewFewRows(c.parts, c.gated, in); ok != c.together {
			t.Errorf("%v gated %v of [%d,%d]: together %v", c.parts, c.gated, c.m, c.k, ok)
		}
	}
}

// TestFewRowsIsItsParts: the bits of its GEMMs one by one, and of SwiGLU behind them.
func TestFewRowsIsItsParts(t *testing.T) {
	const M, K = 3, 64
	mul := kernel.MatMul{TransB: true, RowsApart: true}
	x := f32s(normal32(1, M*K), M, K)
	var want []kernel.Tensor
	in := []kernel.Tensor{x}
	for i, n := range []int{24, 24, 7} {
		w := f32s(normal32(uint64(i+2), n*K), n, K)
		in, want = append(in, w), append(want, evaluate(t, mul, x, w)[0])
	}
	three, _ := kernel.NewFewRows([]kernel.Kernel{mul, mul, mul}, false, []kernel.Type{x.Type, in[1].Type})
	for i, got := range evaluate(t, three, in...) {
		if !slices.Equal(got.F32(), want[i].F32()) {
			t.Errorf("GEMM %d differs", i)
		}
	}
	gated, _ := kernel.NewFewRows([]kernel.Kernel{mul, mul}, true, []kernel.Type{x.Type, in[1].Type})
	if got := evaluate(t, gated, in[:3]...)[0]; !slices.Equal(got.F32(),
		evaluate(t, kernel.SwiGLU{}, want[0], want[1])[0].F32()) {
		t.Error("gate and up differ")
	}
	if _, err := gated.Shape([]kernel.Type{x.Type, in[1].Type}); err == nil {
		t.Error("a GEMM without its weight is taken")
	}
}

// TestLikeliest: of equals the first; the first number that is none.
func TestLikeliest(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	x := f32s([]float32{1, 3, 2, 3, -1, -1, -2, -1, 5, nan, 9, -inf, 0, 0, inf, nan, -7, -8, -9, -6}, 5, 4)
	got := evaluate(t, kernel.Likeliest{}, x)[0].I32()
	if want := []int32{1, 0, -2, -3, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
