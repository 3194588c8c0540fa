package graph

import (
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// mostUpdate is the rank up to which an experts' GEMM takes a low-rank update along.
const mostUpdate = 64

// fuseExpertUpdates merges two GEMMs over the same experts' rows of which one, a low-rank update, is added to the
// other's result, or the other to its, where nobody else reads that result.
func fuseExpertUpdates(p *compilation) error {
	uses := uses(p.calls, p.outputs)
	key, writers := orderOf(p.calls)
	removed := map[*call]bool{}
	for _, c := range p.calls {
		second, ok := expertTermOf(c)
		if !ok || second.onto == nil || second.onto.call == nil {
			continue
		}
		before := second.onto.call
		first, ok := expertTermOf(before)
		if !ok || removed[before] || uses[second.onto] != 1 || before.segment != c.segment ||
			!undisturbed(writers, key, before, c) {
			continue
		}
		large, small := first, second
		if large.depth < small.depth {
			large, small = small, large
		}
		low, ok := small.kernel.(kernel.ExpertMatMul)
		if m, plain := large.kernel.(kernel.ExpertMatMul); !ok || small.depth > mostUpdate ||
			small.depth == large.depth || large.starts != small.starts || plain && m.Alpha != 0 && m.Alpha != 1 {
			continue
		}
		in := slices.Clone(large.in)
		if first.onto != nil {
			in = append(in, first.onto)
		}
		c.kernel, c.in = kernel.ExpertUpdate{Base: large.kernel, Low: low, Onto: first.onto != nil},
			append(in, small.in[:2]...)
		removed[before] = true
	}
	p.calls = slices.DeleteFunc(p.calls, func(c *call) bool { return removed[c] })
	return nil
}

// expertTerm is an experts' GEMM, alone or added to onto's memory.
type expertTerm struct {
	kernel       kernel.Kernel // in its form without an addend, which has these inputs
	in           []*Value
	starts, onto *Value
	depth        int
}

func expertTermOf(c *call) (t expertTerm, ok bool) {
	starts, to := 1, true
	switch k := c.kernel.(type) {
	case kernel.ExpertMatMul:
		t.kernel, starts, to = k, 2, false
	case kernel.Onto[kernel.ExpertMatMul]:
		t.kernel, starts = k.Of, 2
	case kernel.ExpertMatMulNF4:
		t.kernel, to = k, false
	case kernel.Onto[kernel.ExpertMatMulNF4]:
		t.kernel = k.Of
	case kernel.ExpertMatMulInt8:
		t.kernel, to = k, false
	case kernel.Onto[kernel.ExpertMatMulInt8]:
		t.kernel = k.Of
	case kernel.ExpertMatMulMXFP4:
		t.kernel, to = k, false
	case kernel.Onto[kernel.ExpertMatMulMXFP4]:
		t.kernel = k.Of
	default:
		return t, false
	}
	t.in, t.starts, t.depth = c.in, c.in[starts], c.in[0].Type.Shape[1]
	if to {
		t.in, t.onto = c.in[:len(c.in)-1], c.in[len(c.in)-1]
	}
	return t, true
}
