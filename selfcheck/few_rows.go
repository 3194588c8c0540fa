package selfcheck

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// fewRowsChecks returns the calls of a step that continues sequences by a token each.
func fewRowsChecks() []check {
	n := newNumbers()
	var all []check
	for _, c := range []struct {
		H, K, D, R int
		at         []int
	}{{4, 2, 64, 64, []int{5}}, {3, 1, 128, 96, []int{0, -1, 8, 3}}, {2, 2, 80, 80, []int{7, 9, 1 << 30}},
		{9, 3, 16, 6, []int{1, 2, 3, 4, 5}}} {
		M := len(c.at)
		table, positions := angles(M, c.R)
		all = append(all,
			check{kernel: "rope_append", name: fmt.Sprintf("%d heads of %d over %d, %d columns, rows to %v of 9", c.H,
				c.D, c.K, c.R, c.at),
				build:  one(kernel.RoPEAppend{Heads: c.H, KVHeads: c.K, HeadDim: c.D}),
				bounds: []bound{rounded, rounded, exact},
				in: []checkInput{n.normal(1, M, c.H*c.D).overwritten(), n.normal(1, M, c.K*c.D),
					n.normal(1, M, c.K*c.D),
					table, positions,
					n.normal(1, 9, c.K*c.D).overwritten(), n.normal(1, 9, c.K*c.D).overwritten(), integers(c.at...)}})
	}
	for _, M := range []int{1, 5, 17, 64, 100, 256} {
		for _, K := range []int{64, 168, 2112} {
			all = append(all, sharedRowsChecks(n, M, K)...)
		}
	}
	for _, size := range [][2]int{{1, 32000}, {5, 173}, {64, 1}, {3, 4100}} {
		x := n.normal(1, size[0], size[1])
		copy(x.values, x.values[len(x.values)/2:]) // equals
		all = append(all, check{kernel: "likeliest", name: fmt.Sprint(size), build: one(kernel.Likeliest{}),
			bounds: []bound{exact}, in: []checkInput{x}})
	}
	for _, size := range [][2]int{{1, 32000}, {5, 173}, {64, 1}, {3, 4100}, {33, 1025}} {
		x, draws := n.normal(3, size[0], size[1]), checkInput{shape: []int{size[0], 2}}
		for range size[0] {
			draws.values = append(draws.values, math.Floor(1<<20*n.Float64())/(1<<20), 0.5+0.25*float64(n.IntN(4)))
		}
		all = append(all, check{kernel: "draw", name: fmt.Sprint(size), build: one(kernel.Draw{}),
			bounds: []bound{exact, single}, in: []checkInput{x, draws}})
	}
	return all
}

// sharedRowsChecks returns GEMMs that read the same rows, of which a GPU's plan makes kernel.FewRows{}.
func sharedRowsChecks(n checkNumbers, M, K int) []check {
	mul := kernel.MatMul{TransB: true, RowsApart: true}
	x := n.normal(1, M, K)
	several := func(b *graph.Builder, in []*graph.Value) (out []*graph.Value) {
		b.RowsApart()
		for _, w := range in[1:] {
			out = append(out, b.Apply(mul, in[0], w))
		}
		return out
	}
	gated := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		b.RowsApart()
		return b.ApplyAll(kernel.SwiGLU{}, b.Apply(mul, in[0], in[1]), b.Apply(mul, in[0], in[2]))
	}
	plain := func(f format, in [][]float64) [][]float64 {
		F := len(in[1]) / K
		h := make([]float64, M*F)
		for i := range h {
			var gate, up float64
			for k := range K {
				gate += in[0][i/F*K+k] * in[1][i%F*K+k]
				up += in[0][i/F*K+k] * in[2][i%F*K+k]
			}
			gate = f.round(gate)
			h[i] = f.round(gate / (1 + math.Exp(-gate)) * f.round(up))
		}
		return [][]float64{h}
	}
	spread := 1 / math.Sqrt(float64(K))
	return []check{
		{kernel: "few_rows", name: fmt.Sprintf("three GEMMs of [%d,%d]", M, K), build: several,
			bounds: []bound{rounded, rounded, rounded}, gemm: true,
			in: []checkInput{x, n.normal(1, 40, K), n.normal(1, 7, K), n.normal(1, 33, K)}},
		{kernel: "few_rows", name: fmt.Sprintf("two GEMMs of [%d,%d]", M, K), build: several,
			bounds: []bound{rounded, rounded}, gemm: true,
			in: []checkInput{x, n.normal(1, 19, K), n.normal(1, 64, K)}},
		{kernel: "few_rows", name: fmt.Sprintf("gate and up of [%d,%d]", M, K), build: gated, bounds: []bound{rounded},
			plain: plain, gemm: true,
			in: []checkInput{x, n.normal(spread, 44, K), n.normal(spread, 44, K)}},
	}
}
