package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// padded says of each token whether it is real: padding at the end, in the middle and at both ends, or nothing else.
var padded = map[string]func(tokens int) []int32{
	"at the end":    func(n int) []int32 { return realWhere(n, func(t int) bool { return t < n/2 }) },
	"in the middle": func(n int) []int32 { return realWhere(n, func(t int) bool { return t < n/4 || t >= n-n/3 }) },
	"everywhere":    func(n int) []int32 { return realWhere(n, func(t int) bool { return t%3 == 1 }) },
	"alone":         func(n int) []int32 { return make([]int32, n) },
}

func realWhere(n int, is func(t int) bool) []int32 {
	real := make([]int32, n)
	for t := range real {
		if is(t) {
			real[t] = 1
		}
	}
	return real
}

// TestSortByExpertLeavesPaddingOut: tokens that are not real are with no expert; the others lie as they do alone.
func TestSortByExpertLeavesPaddingOut(t *testing.T) {
	k := kernel.SortByExpert{Experts: 4, Real: true}
	for where, real := range padded {
		kerneltest.Run(t, kerneltest.Case{Name: where, Kernel: k, In: []kerneltest.Input{kerneltest.Ints(route(11, 3, 4), 11, 3), kerneltest.Ints(real(11), 11)}})
	}
	out := evaluate(t, k, ints([]int32{2, 0, 0, 2, 3, 0, 9, -1, 1, 1}, 5, 2), ints([]int32{1, 0, 7, 1, 0}, 5))
	for what, v := range map[string][2][]int32{
		"rows": {out[0].I32(), {2, 0, -1, -1, 3, 1, 4, 5, -1, -1}}, "source": {out[1].I32(), {1, 5, 0, 4, 6, 7, -1, -1, -1, -1}}, "starts": {out[2].I32(), {0, 2, 2, 3, 6}},
	} {
		if !slices.Equal(v[0], v[1]) {
			t.Errorf("%s are %v, want %v", what, v[0], v[1])
		}
	}
	if _, err := k.Shape([]kernel.Type{kernel.T(kernel.I32, 4, 2), kernel.T(kernel.I32, 8)}); err == nil {
		t.Error("whether 8 tokens are real is accepted of 4 tokens")
	}
	if _, err := k.Shape([]kernel.Type{kernel.T(kernel.I32, 4, 2)}); err == nil {
		t.Error("which tokens are real is not asked for")
	}
}

// TestRowsOfNoExpert runs every kernel of experts over rows of which the last ones are with none.
func TestRowsOfNoExpert(t *testing.T) {
	const M, K, E, N, C = 12, 2, 5, 24, 64
	for where, real := range padded {
		out := evaluate(t, kernel.SortByExpert{Experts: E, Real: true}, ints(route(M, K, E), M, K), ints(real(M), M))
		places, first := kerneltest.Ints(out[0].I32(), M, K), kerneltest.Ints(out[2].I32(), E+1)
		from, many := kerneltest.Ints(out[1].I32(), M*K), kerneltest.Normal(M*K, C)
		cases := []kerneltest.Case{
			{Kernel: kernel.GatherTokens{}, In: []kerneltest.Input{kerneltest.Normal(M, C), places, from}, Bound: 6e-8},
			{Kernel: kernel.SumTokens{}, In: []kerneltest.Input{many, places, from}, Bound: 4e-7},
			{Kernel: kernel.ScaleSlots{}, In: []kerneltest.Input{many, kerneltest.Normal(M, K), places, from}, Bound: 2e-7},
			{Kernel: kernel.ScaleSlotsGrad{}, In: []kerneltest.Input{many, many, places, from}, Bound: 2e-7},
			{Kernel: kernel.DropSlots{P: 0.4, Stream: 3}, In: []kerneltest.Input{many, kerneltest.Ints([]int32{5, 6}, 2), from}, Bound: 2e-7},
			{Kernel: kernel.ExpertBias{Experts: E}, In: []kerneltest.Input{many, kerneltest.Normal(E * C).As(kernel.BF16), first}, Bound: 2e-7},
			{Kernel: kernel.ExpertWeightGrad{Experts: E}, In: []kerneltest.Input{kerneltest.Normal(M*K, N), many, first}, Bound: 1e-6},
			{Kernel: kernel.ExpertWeightGradGathered{Experts: E, PerToken: K}, In: []kerneltest.Input{kerneltest.Normal(M*K, N), kerneltest.Normal(M, C), from, first}, Bound: 1e-6},
		}
		_, nf4 := expertWeights(t, E, N, C, "nf4", true)
		_, int8 := expertWeights(t, E, N, C, "int8", false)
		codes, scales, _ := mxfp4Experts(E, N, C)
		for _, back := range []bool{false, true} {
			x, y, v := kerneltest.Normal(M*K, C), kerneltest.Normal(M*K, N), kerneltest.Normal(E*N, 3)
			if back {
				x, y, v = y, x, kerneltest.Normal(E*3, C)
			}
			numbers := kernel.ExpertMatMul{Experts: E, TransB: !back}
			base := kernel.ExpertMatMulNF4{Experts: E, N: N, K: C, Nested: true, Transposed: back}
			update := kernel.ExpertUpdate{Base: base, Low: numbers}
			onto := update
			onto.Onto = true
			of := func(parts ...kerneltest.Input) []kerneltest.Input {
				return append([]kerneltest.Input{x, first}, parts...)
			}
			low := append(of(inputsOf(nf4)...), kerneltest.Normal(M*K, 3), v)
			added := append(of(inputsOf(nf4)...), y, kerneltest.Normal(M*K, 3), v)
			cases = append(cases,
				kerneltest.Case{Kernel: numbers, In: []kerneltest.Input{x, kerneltest.Normal(E*N, C), first}},
				kerneltest.Case{Kernel: numbers, In: []kerneltest.Input{x, kerneltest.Normal(E*N, C).As(kernel.BF16), first}},
				kerneltest.Case{Kernel: base, In: of(inputsOf(nf4)...)},
				kerneltest.Case{Kernel: kernel.ExpertMatMulInt8{Experts: E, N: N, K: C, Transposed: back}, In: of(inputsOf(int8)...)},
				kerneltest.Case{Kernel: kernel.ExpertMatMulMXFP4{Experts: E, N: N, K: C, Transposed: back}, In: of(kerneltest.Bytes(codes, len(codes)), kerneltest.Bytes(scales, len(scales)))},
				kerneltest.Case{Kernel: update, In: low}, kerneltest.Case{Kernel: onto, In: added})
		}
		for i, c := range cases {
			c.Name = fmt.Sprintf("%s, %d, padding %s", c.Kernel.Name(), i, where)
			if c.Bound == 0 {
				c.Bound = 1e-6
			}
			kerneltest.Run(t, c)
		}
	}
}

// TestPaddingChangesNoToken: what experts make of tokens, and all gradients, are to the bit what they are without the padding between
// and behind, whatever it holds; and zero where there is padding.
func TestPaddingChangesNoToken(t *testing.T) {
	const M, K, E, N, C, rank = 30, 2, 5, 24, 64, 4
	_, parts := expertWeights(t, E, N, C, "nf4", true)
	a, b := tensor32(normal32(4, E*rank*C), E*rank, C), tensor32(normal32(5, E*N*rank), E*N, rank)
	bias := tensor32(normal32(6, E*N), E*N)
	for where, is := range padded {
		real := is(M)
		// layer is what experts make of the tokens that are kept, and the gradients for x, for the weights, for A and for B.
		layer := func(keep func(t int) bool, real []int32) [][]float32 {
			var x, weights, dy []float32
			var chosen []int32
			for t := range M {
				if !keep(t) {
					continue
				}
				own, w, d := normal32(uint64(100+t), C), normal32(uint64(200+t), K), normal32(uint64(300+t), N)
				if real != nil && real[t] == 0 {
					own[t%C], w[0] = float32(math.NaN()), float32(math.Inf(1))
				}
				x, weights, dy, chosen = append(x, own...), append(weights, w...), append(dy, d...), append(chosen, route(M, K, E)[t*K:][:K]...)
			}
			m := len(chosen) / K
			sort, in := kernel.SortByExpert{Experts: E, Real: real != nil}, []kernel.Tensor{ints(chosen, m, K)}
			if real != nil {
				in = append(in, i32s(real))
			}
			at := evaluate(t, sort, in...)
			rows, source, first := at[0], at[1], at[2]
			one := func(k kernel.Kernel, in ...kernel.Tensor) kernel.Tensor { return evaluate(t, k, in...)[0] }
			packed := func(x kernel.Tensor) []kernel.Tensor { return append([]kernel.Tensor{x, first}, parts...) }
			tokens, slots := tensor32(x, m, C), tensor32(weights, m, K)
			each := one(kernel.GatherTokens{}, tokens, rows, source)
			low := one(kernel.ExpertMatMul{Experts: E, TransB: true}, each, a, first)
			y := one(kernel.ExpertUpdate{Base: kernel.ExpertMatMulNF4{Experts: E, N: N, K: C, Nested: true}, Low: kernel.ExpertMatMul{Experts: E, TransB: true, Alpha: 2}},
				append(packed(each), low, b)...)
			y = one(kernel.ExpertBias{Experts: E}, y, bias, first)
			sum := one(kernel.SumTokens{}, one(kernel.ScaleSlots{}, y, slots, rows, source), rows, source)
			up := one(kernel.GatherTokens{}, tensor32(dy, m, N), rows, source)
			dw := one(kernel.ScaleSlotsGrad{}, y, up, rows, source)
			dz := one(kernel.ScaleSlots{}, up, slots, rows, source)
			dlow := one(kernel.ExpertMatMul{Experts: E, Alpha: 2}, dz, b, first)
			dx := one(kernel.ExpertMatMulNF4{Experts: E, N: N, K: C, Nested: true, Transposed: true}, packed(dz)...)
			dx = one(kernel.SumTokens{}, one(kernel.Add{}, dx, one(kernel.ExpertMatMul{Experts: E}, dlow, a, first)), rows, source)
			da := one(kernel.ExpertWeightGradGathered{Experts: E, PerToken: K}, dlow, tokens, source, first)
			db := one(kernel.ExpertWeightGrad{Experts: E, Alpha: 2}, dz, low, first)
			return [][]float32{sum.F32(), dx.F32(), dw.F32(), da.F32(), db.F32()}
		}
		got := layer(func(int) bool { return true }, real)
		want := layer(func(t int) bool { return real[t] != 0 }, nil)
		for i, width := range []int{N, C, K} { // what each token has a row of
			var kept []float32
			for token := range M {
				row := got[i][token*width:][:width]
				if real[token] != 0 {
					kept = append(kept, row...)
				} else if !slices.Equal(row, make([]float32, width)) {
					t.Errorf("padding %s: result %d is not zero in row %d", where, i, token)
				}
			}
			got[i] = kept
		}
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("padding %s: result %d is not that of the tokens alone", where, i)
			}
		}
	}
}
