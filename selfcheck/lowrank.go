package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// lowRankChecks returns low-rank GEMMs, alone and in groups that share their large operand, at sizes that every form of
// the kernels runs at.
func lowRankChecks() []check {
	n := newNumbers()
	var all []check
	for _, c := range []struct{ count, M, C, R int }{{1, 7, 64, 8}, {2, 65, 172, 8}, {2, 129, 576, 8}, {3, 129, 200, 8},
		{1, 65, 64, 48}, {3, 129, 200, 16}, {2, 65, 64, 16},
		// the last: no wider than the rank
		{1, 2500, 264, 16}, {3, 2500, 200, 8}, {3, 2500, 264, 16}, {1, 2500, 136, 8}, {2, 2500, 72, 12},
		{2, 65, 64, 32}, {3, 129, 16, 32}} {
		all = append(all, lowRankCheck(n, c.count, c.M, c.C, c.R)...)
	}
	// both gradients from one reading: one block, blocks of columns and rows, and ranks that take two GEMMs
	for _, s := range [][3]int{{5, 64, 8}, {129, 1032, 16}, {2500, 520, 16}, {300, 136, 32}, {65, 72, 24}} {
		M, C, R := s[0], s[1], s[2]
		all = append(all, check{kernel: "matmul", name: fmt.Sprintf("both gradients of [%d,%d] rank %d", M, C, R),
			build: one(kernel.MatMulGrads{Alpha: 0.5}), bounds: []bound{rounded, summed}, gemm: true,
			in: []checkInput{n.normal(1, M, C), n.normal(1, C, R), n.normal(1, M, R),
				n.normal32(8, C, R).overwritten()}})
	}
	return all
}

func lowRankCheck(n checkNumbers, count, M, C, R int) []check {
	x, size := n.normal(1, M, C), fmt.Sprintf(", %d of [%d,%d] rank %d", count, M, C, R)
	var t, a, b, gradients []checkInput
	var wide, sums []bound
	for range count {
		t, a, b, gradients = append(t, n.normal(1, M, R)), append(a, n.normal(1, R, C)), append(b, n.normal(1, C, R)),
			append(gradients, n.normal32(8, R, C).overwritten())
		wide, sums = append(wide, rounded), append(sums, summed)
	}
	inputs := func(first []checkInput, lists ...[]checkInput) []checkInput {
		for _, l := range lists {
			first = append(first[:len(first):len(first)], l...)
		}
		return first
	}
	var pairs, turned []checkInput
	for i := range count {
		pairs, turned = append(pairs, t[i], a[i]), append(turned, t[i], b[i])
	}
	last := len(pairs)
	shared := []checkInput{x}
	add := func(k kernel.Kernel) func(g *graph.Builder, in []*graph.Value) []*graph.Value {
		return func(g *graph.Builder, in []*graph.Value) []*graph.Value {
			return g.ApplyAll(k, append(in[:last:last], g.Apply(kernel.Add{}, in[last], in[last+1]))...)
		}
	}
	check1 := func(what string, k kernel.Kernel, bounds []bound, in []checkInput) check {
		return check{kernel: "matmul", name: what + size, build: one(k), bounds: bounds, in: in, gemm: true}
	}
	return []check{
		check1("x aᵀ", kernel.GroupedMatMul{N: count, TransB: true, Alpha: 0.5}, wide, inputs(shared, a)),
		check1("x b", kernel.GroupedMatMul{N: count, Alpha: 0.5}, wide, inputs(shared, b)),
		check1("tᵀ x onto fp32", kernel.Onto[kernel.GroupedMatMul]{Of: kernel.GroupedMatMul{N: count, TransA: true,
			Alpha: 0.5}}, sums, inputs(shared, t, gradients)),
		check1("sum of t a", kernel.MatMulSum{N: count, Alpha: 0.5}, []bound{rounded}, pairs),
		check1("sum of t bᵀ", kernel.MatMulSum{N: count, TransB: true, Alpha: 0.5}, []bound{rounded}, turned),
		{kernel: "matmul", name: "sum of t a onto bf16" + size,
			build:  add(kernel.Onto[kernel.MatMulSum]{Of: kernel.MatMulSum{N: count, Alpha: 0.5}}),
			bounds: []bound{rounded}, gemm: true,
			in: append(pairs[:last:last], x, zeros(M, C))},
		{kernel: "matmul", name: "xᵀ t onto fp32" + size,
			build:  one(kernel.Onto[kernel.MatMul]{Of: kernel.MatMul{TransA: true, Alpha: 0.5}}),
			bounds: []bound{summed}, gemm: true,
			in: []checkInput{x, t[0], n.normal32(8, C, R).overwritten()}},
	}
}
