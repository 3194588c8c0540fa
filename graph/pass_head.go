package graph

import (
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// accumulateHeads makes kernels with a vocabulary head add the gradient of its matrix to the state that sums it up, so
// that a second matrix of that size does not exist. Where the matrix is also the table of embeddings, the state is the
// sum of several gradients, and each is then added by itself.
func accumulateHeads(c *compilation) error {
	uses, readers := uses(c.calls, c.outputs), map[*Value]*call{}
	for _, call := range c.calls {
		for _, v := range call.in {
			readers[v] = call
		}
	}
	removed := map[*call]bool{}
	for _, p := range c.calls {
		k, ok := p.kernel.(kernel.HeadAccumulating)
		if !ok {
			continue
		}
		variant, ok := k.AccumulateHead()
		if !ok {
			continue
		}
		dw := p.out[len(p.out)-1]
		sums, end := sumsTo(dw, uses, readers)
		if end == nil || end.segment != p.segment || reads(p, root(end.in[0])) {
			continue
		}
		p.kernel, p.in = variant, append(slices.Clone(p.in), end.in[0])
		if len(sums) == 0 {
			p.out[len(p.out)-1], end.out[0].call, end.out[0].out = end.out[0], p, len(p.out)-1
			removed[end] = true
			continue
		}
		// the first sum's other term takes its place in the chain
		first := sums[0]
		rest := first.in[0]
		if rest == dw {
			rest = first.in[1]
		}
		removed[first] = true
		after := end
		if len(sums) > 1 {
			after = sums[1]
		}
		after.in = slices.Clone(after.in)
		after.in[slices.Index(after.in, first.out[0])] = rest
		end.in[0] = dw
	}
	c.calls = slices.DeleteFunc(c.calls, func(c *call) bool { return removed[c] })
	return nil
}

// sumsTo returns the chain of sums that v alone is a term of, and the AddTo at its end; nil = it ends otherwise.
func sumsTo(v *Value, uses map[*Value]int, readers map[*Value]*call) (sums []*call, end *call) {
	for uses[v] == 1 {
		r := readers[v]
		if r == nil { // it is an output
			return nil, nil
		}
		switch r.kernel.(type) {
		case kernel.Add:
			sums, v = append(sums, r), r.out[0]
		case kernel.AddTo:
			if r.in[1] == v && r.in[0].kind == State {
				return sums, r
			}
			return nil, nil
		default:
			return nil, nil
		}
	}
	return nil, nil
}
