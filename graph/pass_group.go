package graph

import (
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// Low-rank GEMMs that share what is large about them are grouped, so that it is read or written once:
//
//	x A_1ᵀ, x A_2ᵀ, ...        read the same x          -> GroupedMatMul
//	g_1 += t_1ᵀ x, ...         read the same x          -> Onto[GroupedMatMul]
//	d = t_1 A_1, d += t_2 A_2  are added to the same d  -> MatMulSum, Onto[MatMulSum]
//
// Such are the low-rank updates of layers that have their input in common. Where gradients are computed, frozen weights
// are left out, however narrow: they give the same bits packed and as numbers, and packed ones stay GEMMs of their own.

// leftOut tells whether a GEMM is of weights that are left out.
func leftOut(c *call, trains bool) bool { return trains && root(c.in[1]).kind == Frozen }

func trains(calls []*call) bool {
	return slices.ContainsFunc(calls, func(c *call) bool { return c.backward })
}

// groupGEMMs puts groups of GEMMs that read the same operand in place of their members.
func groupGEMMs(c *compilation) error {
	w := waitsOf(c.calls)
	for _, members := range groups(c.calls, c.target) {
		for len(members) > 1 {
			n := 1
			for n < len(members) && together(w, members[:n+1], c.target) {
				n++
			}
			if n > 1 {
				var one *call
				c.calls, one = merge(c.calls, members[:n])
				w.unite(members[:n], one)
			}
			members = members[n:]
		}
	}
	c.calls = ordered(c.calls)
	return nil
}

// gemmOf returns what a call multiplies, alone or onto memory; n is how many GEMMs it sums, 0 for other calls.
func gemmOf(c *call) (k kernel.MatMul, onto bool, n int) {
	switch k := c.kernel.(type) {
	case kernel.MatMul:
		return k, false, 1
	case kernel.Onto[kernel.MatMul]:
		return k.Of, true, 1
	case kernel.MatMulSum:
		return kernel.MatMul{TransB: k.TransB, Alpha: k.Alpha}, false, k.N
	case kernel.Onto[kernel.MatMulSum]:
		return kernel.MatMul{TransB: k.Of.TransB, Alpha: k.Of.Alpha}, true, k.Of.N
	}
	return k, false, 0
}

// sumGEMMs moves low-rank GEMMs that are added to the same memory, with others between them, into the first.
func sumGEMMs(c *compilation) error {
	calls, fits := c.calls, c.target.groups
	uses := uses(calls, c.outputs)
	w, training := waitsOf(calls), trains(calls)
	for _, c := range slices.Clone(calls) {
		k, onto, n := gemmOf(c)
		if n != 1 || !onto || k.TransA || leftOut(c, training) || root(c.in[2]).kind != Computed {
			continue
		}
		var first *call
		for v := c.in[2]; uses[v] == 1 && v.call != nil && v.call.segment == c.segment; {
			p := v.call
			if one, _, n := gemmOf(p); n > 0 && one == k && !leftOut(p, training) &&
				fits(k, types(c.in[:2]), c.out[0].Type, n+1) && p.in[0].Type.Equal(c.in[0].Type) {
				first = p
			}
			a := overwrites(p)
			if len(a) != 1 || len(p.out) != 1 {
				break
			}
			v = p.in[a[0].In]
		}
		if first == nil || w.waitsFor(c.in[0].call, first) || w.waitsFor(c.in[1].call, first) {
			continue
		}
		w.also(first, c.in[0].call, c.in[1].call)
		_, onto, n = gemmOf(first)
		first.in = append(append(first.in[:2*n:2*n], c.in[0], c.in[1]), first.in[2*n:]...)
		if sum := (kernel.MatMulSum{N: n + 1, TransB: k.TransB, Alpha: k.Alpha}); onto {
			first.kernel = kernel.Onto[kernel.MatMulSum]{Of: sum}
		} else {
			first.kernel = sum
		}
		// The call that made what c added to now makes c's result.
		p, result := c.in[2].call, c.out[0]
		p.out[c.in[2].out] = result
		result.call, result.out = p, c.in[2].out
		calls = without(calls, c)
	}
	c.calls = calls
	return nil
}

// groups lists GEMMs that read the same operand, in the order of their first.
func groups(calls []*call, t target) [][]*call {
	type key struct {
		k        kernel.MatMul
		onto     bool
		shared   *Value
		result   string
		segment  int
		backward bool
	}
	var all [][]*call
	at, training := map[key]int{}, trains(calls)
	for _, c := range calls {
		k, onto, n := gemmOf(c)
		if n != 1 || leftOut(c, training) || k.TransA != onto || k.TransA &&
			(k.TransB || root(c.in[2]).kind != State) || c.in[0] == c.in[1] ||
			!t.groups(k, types(c.in[:2]), c.out[0].Type, 2) {
			continue // neither x op(a) nor g += tᵀ x
		}
		shared := c.in[0]
		if k.TransA {
			shared = c.in[1]
		}
		id := key{k, onto, shared, c.out[0].Type.String(), c.segment, c.backward}
		i, ok := at[id]
		if !ok {
			i = len(all)
			at[id], all = i, append(all, nil)
		}
		all[i] = append(all[i], c)
	}
	return all
}

// together tells whether the calls, of which all but the last were found to fit, can run as one.
func together(w waits, members []*call, t target) bool {
	last := members[len(members)-1]
	k, _, _ := gemmOf(last)
	if !t.groups(k, types(last.in[:2]), last.out[0].Type, len(members)) {
		return false
	}
	for _, c := range members[:len(members)-1] {
		if w.waitsFor(c, last) || w.waitsFor(last, c) || overwrites(c) != nil && root(c.out[0]) == root(last.out[0]) {
			return false
		}
	}
	return true
}

// merge replaces the members by one call: sums onto memory where the last of them stood, others at the first.
func merge(calls, members []*call) (kept []*call, one *call) {
	k, onto, _ := gemmOf(members[0])
	each := kernel.GroupedMatMul{N: len(members), TransA: k.TransA, TransB: k.TransB, Alpha: k.Alpha}
	first, place := members[0], members[0]
	c := &call{kernel: each, scope: first.scope, segment: first.segment, backward: first.backward}
	shared, own := 0, 1
	if k.TransA {
		shared, own = 1, 0
	}
	if onto {
		c.kernel, place = kernel.Onto[kernel.GroupedMatMul]{Of: each}, members[len(members)-1]
	}
	c.in = append(c.in, first.in[shared])
	for _, m := range members {
		c.in = append(c.in, m.in[own])
	}
	for i, m := range members {
		if onto {
			c.in = append(c.in, m.in[2])
		}
		result := m.out[0]
		result.call, result.out = c, i
		c.out = append(c.out, result)
	}
	calls = slices.Clone(calls)
	calls[slices.Index(calls, place)] = c
	return without(calls, members...), c
}

func without(calls []*call, gone ...*call) []*call {
	return slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return slices.Contains(gone, c) })
}
