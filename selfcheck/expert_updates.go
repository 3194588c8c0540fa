package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// expertUpdateChecks returns GEMMs of K of E experts for each of M tokens that take a low-rank update along. Ranks are
// those that one kernel serves where it serves the GEMM, and others.
func expertUpdateChecks(n checkNumbers) []check {
	var all []check
	for at, s := range []struct{ M, E, K, N, width, rank int }{
		{7, 4, 2, 40, 33, 5}, {129, 128, 8, 24, 16, 8}, {450, 3, 2, 136, 200, 16}, {450, 3, 2, 136, 200, 40},
		{300, 3, 2, 264, 128, 64}, {300, 3, 2, 136, 256, 72}, {300, 3, 2, 136, 136, 12},
	} {
		S := s.M * s.K
		for i := range 4 {
			transB, pad := i%2 == 1, []padding{noPadding, paddings[at%len(paddings)]}[i/2]
			_, _, _, starts := routing(s.M, s.E, s.K, pad)
			first := integers(starts...)
			x, y, v := []int{S, s.N}, []int{S, s.width}, []int{s.E * s.rank, s.width}
			if transB {
				x, y, v = y, x, []int{s.E * s.N, s.rank}
			}
			k := kernel.ExpertUpdate{Base: kernel.ExpertMatMul{Experts: s.E, TransB: transB},
				Low: kernel.ExpertMatMul{Experts: s.E, TransB: transB, Alpha: 0.75}}
			add := k
			add.Onto = true
			onto := func(g *graph.Builder, in []*graph.Value) []*graph.Value {
				return g.ApplyAll(add, in[0], in[1], in[2], g.Apply(kernel.Add{}, in[5], in[6]), in[3], in[4])
			}
			name := fmt.Sprintf("%d experts of [%d,%d], %d rows, rank %d, transposed %v%s", s.E, s.N, s.width, S,
				s.rank, transB, pad)
			in := []checkInput{n.normal(1, x...), n.normal(1, s.E*s.N, s.width), first, n.normal(1, S, s.rank),
				n.normal(1, v...)}
			all = append(all,
				check{kernel: "expert_update", name: name, build: one(k), bounds: []bound{rounded}, in: in, gemm: true},
				check{kernel: "expert_update", name: name + " onto activations", build: onto, bounds: []bound{rounded},
					gemm: true, in: append(in[:5:5], n.normal(8, y...), zeros(y...))})
		}
	}
	return all
}
