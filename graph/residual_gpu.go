//go:build gpu

package graph

import (
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// widen gives the residual sums of the forward pass a tail where values are stored in 16 bits: the norm of the sum and the
// next sum read it. All other readers, the backward pass among them, see the nearest number of 16 bits.
func (t deviceTarget) widen(calls []*call) []*call {
	if t.precision.Stored(kernel.ComputeType) == kernel.F32 {
		return calls
	}
	normed := map[*Value]bool{}
	for _, c := range calls {
		if _, ok := c.kernel.(kernel.RMSNorm); ok && !c.backward {
			normed[c.in[0]] = true
		}
	}
	tails := map[*Value]*Value{}
	for _, c := range calls {
		switch k := c.kernel.(type) {
		case kernel.Add:
			sum := c.out[0]
			if c.backward || !normed[sum] {
				continue
			}
			x, r := c.in[0], c.in[1]
			if tails[x] == nil && tails[r] != nil {
				x, r = r, x
			}
			c.in = []*Value{x, r}
			if t := tails[x]; t != nil {
				c.in = append(c.in, t)
			}
			c.kernel = kernel.AddLowBits{Carried: tails[x] != nil}
			tails[sum] = &Value{Type: kernel.T(kernel.U8, sum.Type.Shape...), Name: "tail of " + sum.Name, call: c, out: 1, depends: sum.depends}
			c.out = append(c.out, tails[sum])
		case kernel.RMSNorm:
			if t := tails[c.in[0]]; t != nil {
				c.kernel, c.in = kernel.RMSNormLowBits(k), append(c.in, t)
			}
		}
	}
	return calls
}

// widenTerms stores the second terms of sums with tails as fp32 where products make them for that sum alone.
func widenTerms(calls []*call) {
	uses := map[*Value]int{}
	for _, c := range calls {
		for _, v := range c.in {
			uses[v]++
		}
	}
	for _, c := range calls {
		if _, ok := c.kernel.(kernel.AddLowBits); ok {
			widenTerm(c.in[1], uses)
		}
	}
}

// widenTerm stores v as fp32 if kernels that can make it, one adding to the result of the other, for one reader.
func widenTerm(v *Value, uses map[*Value]int) {
	for v.call != nil && uses[v] == 1 {
		k, ok := v.call.kernel.(kernel.FP32OutOnGPU)
		if !ok {
			return
		}
		onto := overwrites(v.call)
		if len(onto) == 0 {
			v.call.kernel = k.FP32OutGPU()
			return
		}
		v = v.call.in[onto[0].In]
	}
}

// normOfSum is the kernel that a residual sum and the norm of it merge into.
func normOfSum(c *call) (k kernel.AddRMSNorm, ok bool) {
	sum := c.in[0].call
	if sum == nil {
		return k, false
	}
	switch norm := c.kernel.(type) {
	case kernel.RMSNorm:
		_, ok = sum.kernel.(kernel.Add)
		return kernel.AddRMSNorm{Eps: norm.Eps}, ok
	case kernel.RMSNormLowBits:
		add, ok := sum.kernel.(kernel.AddLowBits)
		return kernel.AddRMSNorm{Eps: norm.Eps, Tail: true, Carried: add.Carried}, ok
	}
	return k, false
}

// mergeSums merges a residual sum with the norm that reads it first.
func mergeSums(calls []*call) []*call {
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
		if removed[sum] || sum.segment != c.segment || merged.Tail && first[c.in[2]] != c {
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
	kept := make([]*call, 0, len(calls))
	for _, c := range calls {
		if !removed[c] {
			kept = append(kept, c)
		}
	}
	return kept
}
