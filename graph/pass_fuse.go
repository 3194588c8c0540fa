package graph

import (
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// normOfSum is the kernel that a residual sum and the norm of it merge into.
func normOfSum(c *call) (k kernel.AddRMSNorm, ok bool) {
	sum := c.in[0].call
	if sum == nil {
		return k, false
	}
	switch norm := c.kernel.(type) {
	case kernel.RMSNorm:
		_, ok = sum.kernel.(kernel.Add)
		return kernel.AddRMSNorm{Eps: norm.Eps}, ok && norm.Heads <= 1
	case kernel.RMSNormLowBits:
		add, ok := sum.kernel.(kernel.AddLowBits)
		return kernel.AddRMSNorm{Eps: norm.Eps, LowBits: true, Carried: add.Carried}, ok
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
		for i, v := range c.out {
			v.call, v.out = c, i
		}
	}
	p.calls = slices.DeleteFunc(calls, func(c *call) bool { return removed[c] })
	return nil
}
