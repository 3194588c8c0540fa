package graph

import (
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// TestGatheredRowsAreReadWhereTheyAre: a GPU's plan does not keep the copies of tokens for the gradient of A; rows that
// are something else, such as those of a dropout, are taken as they are.
func TestGatheredRowsAreReadWhereTheyAre(t *testing.T) {
	const M, K, E, C, R = 6, 2, 3, 16, 4
	for _, dropped := range []bool{false, true} {
		b := NewBuilder(kernel.F32)
		x := b.Param("adapter", "x", kernel.T(kernel.F32, M, C))
		a := b.Param("adapter", "a", kernel.T(kernel.F32, E*R, C))
		experts := b.Batch("experts", kernel.T(kernel.I32, M, K))
		sorted := b.ApplyAll(kernel.SortByExpert{Experts: E}, experts)
		each := b.Apply(kernel.GatherTokens{}, x, sorted[0], sorted[1])
		if dropped {
			each = b.Apply(kernel.Dropout{P: 0.5}, each, b.Batch("dropout", kernel.T(kernel.I32, 2)))
		}
		low := b.Apply(kernel.ExpertMatMul{Experts: E, TransB: true}, each, a, sorted[2])
		labels, scale := b.Batch("labels", kernel.T(kernel.I32, M*K)), b.Batch("scale", kernel.T(kernel.F32, 1))
		b.Grad(b.Apply(kernel.LinearCrossEntropy{Chunk: 4, Grad: true}, low,
			b.Frozen("head", kernel.T(kernel.F32, 8, R)), labels, scale), a)
		if err := b.Err(); err != nil {
			t.Fatal(err)
		}
		c := &compilation{Plan: &Plan{calls: b.calls}, builder: b}
		if err := readGathered(c); err != nil {
			t.Fatal(err)
		}
		found, plain := 0, 0
		for _, call := range c.calls {
			switch k := call.kernel.(type) {
			case kernel.ExpertWeightGradGathered:
				found++
				if k.Experts != E || k.PerToken != K || call.in[1] != x || call.in[2] != sorted[1] ||
					call.in[3] != sorted[2] {
					t.Errorf("%+v reads %v", k, call.in)
				}
			case kernel.ExpertWeightGrad:
				plain++
			}
		}
		if want := 1; dropped && (found != 0 || plain != want) || !dropped && (found != want || plain != 0) {
			t.Errorf("dropped %v: %d gradients of gathered rows and %d others", dropped, found, plain)
		}
	}
}
