package graph

import (
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// keepLowBits gives the residual sums of the forward pass eight more bits, the low bits, where values are stored in 16:
// the norm of the sum and the next sum read them. All other readers, the backward pass among them, see the nearest
// number of 16 bits. A residual sum is one that a norm reads, or that is the first term of a residual sum; but no sum
// of two values that are made for it alone, such as a layer's result and its low-rank update: that becomes one GEMM
// (accumulate).
func keepLowBits(p *compilation) error {
	if !p.target.lowBits() {
		return nil
	}
	calls := p.calls
	residual, uses := map[*Value]bool{}, uses(calls, p.outputs)
	alone := func(v *Value) bool { return v.call != nil && uses[v] == 1 }
	for _, c := range slices.Backward(calls) {
		if c.backward {
			continue
		}
		switch k := c.kernel.(type) {
		case kernel.RMSNorm:
			residual[c.in[0]] = residual[c.in[0]] || k.Heads <= 1
		case kernel.Add:
			if alone(c.in[0]) && alone(c.in[1]) {
				residual[c.out[0]] = false
			} else if residual[c.out[0]] {
				residual[c.in[0]] = true
			}
		}
	}
	lowBits := map[*Value]*Value{}
	for _, c := range calls {
		switch k := c.kernel.(type) {
		case kernel.Add:
			sum := c.out[0]
			if c.backward || !residual[sum] {
				continue
			}
			x, r := c.in[0], c.in[1]
			if lowBits[x] == nil && lowBits[r] != nil {
				x, r = r, x
			}
			c.in = []*Value{x, r}
			if t := lowBits[x]; t != nil {
				c.in = append(c.in, t)
			}
			c.kernel = kernel.AddLowBits{Carried: lowBits[x] != nil}
			lowBits[sum] = &Value{Type: kernel.T(kernel.U8, sum.Type.Shape...), Name: "low bits of " + sum.Name,
				call: c, out: 1, depends: sum.depends}
			c.out = append(c.out, lowBits[sum])
		case kernel.RMSNorm:
			if t := lowBits[c.in[0]]; t != nil && k.Heads <= 1 {
				c.kernel, c.in = kernel.RMSNormLowBits{Eps: k.Eps, PlusOne: k.PlusOne}, append(c.in, t)
			}
		}
	}
	return nil
}

// storeTermsAsFP32 stores the second terms of sums with low bits as fp32 where GEMMs make them for that sum alone.
func storeTermsAsFP32(p *compilation) error {
	uses := uses(p.calls, p.outputs)
	for _, c := range p.calls {
		if _, ok := c.kernel.(kernel.AddLowBits); ok {
			storeAsFP32(c.in[1], uses)
		}
	}
	return nil
}

// storeAsFP32 stores v as fp32 if kernels that can make it, one adding to the result of the other, for one reader.
func storeAsFP32(v *Value, uses map[*Value]int) {
	for v.call != nil && uses[v] == 1 {
		k, ok := v.call.kernel.(kernel.FP32Output)
		if !ok {
			return
		}
		wide, ok := k.WithFP32Out()
		if !ok {
			return
		}
		onto := overwrites(v.call)
		if len(onto) == 0 {
			v.call.kernel = wide
			return
		}
		v = v.call.in[onto[0].In]
	}
}
