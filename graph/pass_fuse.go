package graph

import (
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// normOfSum returns the kernel that a residual sum and the norm of it merge into.
func normOfSum(c *call) (k kernel.AddRMSNorm, ok bool) {
	sum := c.in[0].call
	if sum == nil {
		return k, false
	}
	switch norm := c.kernel.(type) {
	case kernel.RMSNorm:
		_, ok = sum.kernel.(kernel.Add)
		return kernel.AddRMSNorm{Eps: norm.Eps, PlusOne: norm.PlusOne}, ok && norm.Heads <= 1
	case kernel.RMSNormLowBits:
		add, ok := sum.kernel.(kernel.AddLowBits)
		return kernel.AddRMSNorm{Eps: norm.Eps, PlusOne: norm.PlusOne, LowBits: true, Carried: add.Carried}, ok
	}
	return k, false
}

// fuseSumsAndNorms merges a residual sum with the norm that reads it first.
func fuseSumsAndNorms(p *compilation) error {
	calls := p.calls
	first := map[*Value]*call{} // reader
	for _, c := range calls {
		for _, v := range c.in {
			if first[v] == nil {
				first[v] = c
			}
		}
	}
	removed := map[*call]bool{}
	for _, c := range calls {
		merged, ok := normOfSum(c)
		if !ok || first[c.in[0]] != c {
			continue
		}
		sum := c.in[0].call
		if removed[sum] || sum.segment != c.segment || merged.LowBits && first[c.in[2]] != c {
			continue
		}
		removed[sum] = true
		c.kernel = merged
		c.in = append([]*Value{sum.in[0], sum.in[1], c.in[1]}, sum.in[2:]...)
		c.out = append(slices.Clone(sum.out), c.out...)
		takeOutputs(c)
	}
	p.calls = slices.DeleteFunc(calls, func(c *call) bool { return removed[c] })
	return nil
}

// fuseNormsAndRotations merges a norm of heads with the rotation that alone reads it, and their gradients likewise.
func fuseNormsAndRotations(p *compilation) error {
	uses := uses(p.calls, p.outputs)
	removed := map[*call]bool{}
	for _, c := range p.calls {
		switch k := c.kernel.(type) {
		case kernel.RoPE: // where the norm was: what it reads may be written over by now, table and positions are not
			norm := c.in[0].call
			if norm == nil || uses[c.in[0]] != 1 || norm.segment != c.segment {
				continue
			}
			n, ok := norm.kernel.(kernel.RMSNorm)
			if !ok || n.Heads < 1 || n.Heads != k.Heads || k.From != 0 || c.in[1].call != nil || c.in[2].call != nil {
				continue
			}
			norm.kernel, norm.in = kernel.RMSNormRoPE{Norm: n, Rotate: k}, append(slices.Clone(norm.in), c.in[1:]...)
			norm.out = append(slices.Clone(c.out), norm.out[1:]...)
			removed[c] = true
			takeOutputs(norm)
		case kernel.RMSNormGrad: // where it is: nobody else reads what is rotated back
			back := c.in[3].call
			if back == nil || uses[c.in[3]] != 1 || back.segment != c.segment {
				continue
			}
			r, ok := back.kernel.(kernel.RoPE)
			if !ok || k.Heads < 1 || k.Heads != r.Heads || r.From != 0 || uses[back.in[0]] != 1 {
				continue
			}
			c.kernel, c.in = kernel.RMSNormRoPEGrad{Norm: k, Rotate: r}, append(slices.Clone(c.in[:3]), back.in...)
			removed[back] = true
		}
	}
	p.calls = slices.DeleteFunc(p.calls, func(c *call) bool { return removed[c] })
	return nil
}

// takeOutputs makes a call the one of its outputs.
func takeOutputs(c *call) {
	for i, v := range c.out {
		v.call, v.out = c, i
	}
}
