package graph

import (
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// A step that continues sequences by a token each is a chain of calls so short that their number decides. Where rows
// are asked for apart, these passes make fewer of them; each gives the bits of the calls that it replaces.

// fuseRotationsAndCaches merges the rotations of queries and keys with the writing of keys and values into their
// caches.
func fuseRotationsAndCaches(c *compilation) error {
	if !c.builder.rowsApart {
		return nil
	}
	uses := uses(c.calls, c.outputs)
	removed := map[*call]bool{}
	for _, attention := range c.calls {
		var heads, kvHeads int
		switch k := attention.kernel.(type) {
		case kernel.Attention:
			heads, kvHeads = k.Heads, k.KVHeads
		case kernel.AttentionSinks:
			heads, kvHeads = k.Attention.Heads, k.Attention.KVHeads
		default:
			continue
		}
		q, keys, values := attention.in[0].call, attention.in[1].call, attention.in[2].call
		if q == nil || keys == nil || values == nil || !isAppend(keys) || !isAppend(values) || keys.in[1].call == nil {
			continue
		}
		k := keys.in[1].call
		rotateQ, ok := rotationAlone(q)
		rotateK, also := rotationAlone(k)
		members := []*call{q, k, keys, values}
		if !ok || !also || rotateQ.Heads != heads || rotateK.Heads != kvHeads || rotateQ.HeadDim != rotateK.HeadDim ||
			q.in[1] != k.in[1] || q.in[2] != k.in[2] ||
			keys.in[2] != values.in[2] || uses[q.in[0]] != 1 || root(q.in[0]).kind != Computed || uses[k.out[0]] != 1 ||
			uses[q.out[0]] != 1 ||
			uses[keys.out[0]] != 1 || uses[values.out[0]] != 1 || keys.in[0].call != nil || values.in[0].call != nil ||
			keys.in[0] == values.in[0] ||
			slices.ContainsFunc(members, func(m *call) bool { return m.segment != attention.segment }) {
			continue
		}
		values.in = []*Value{q.in[0], k.in[0], values.in[1], q.in[1], q.in[2], keys.in[0], values.in[0], keys.in[2]}
		values.out = []*Value{q.out[0], keys.out[0], values.out[0]}
		values.kernel = kernel.RoPEAppend{Heads: heads, KVHeads: kvHeads, HeadDim: rotateQ.HeadDim}
		takeOutputs(values)
		removed[q], removed[k], removed[keys] = true, true, true
	}
	c.calls = ordered(slices.DeleteFunc(c.calls, func(c *call) bool { return removed[c] }))
	return nil
}

func isAppend(c *call) bool {
	_, ok := c.kernel.(kernel.KVAppend)
	return ok
}

// rotationAlone returns the rotation of a call that turns all its heads forward, by halves.
func rotationAlone(c *call) (k kernel.RoPE, ok bool) {
	k, ok = c.kernel.(kernel.RoPE)
	whole := k.Rest == 0 && k.From == 0 && !k.Inverse && !k.Interleaved
	return k, ok && whole && c.in[1].call == nil && c.in[2].call == nil
}

// shareRows merges GEMMs that read the same rows: a gate and what it gates, with SwiGLU behind them, and queries, keys
// and values.
func shareRows(c *compilation) error {
	if !c.builder.rowsApart || !c.target.lowBits() {
		return nil
	}
	uses := uses(c.calls, c.outputs)
	removed := map[*call]bool{}
	written := map[*Value]bool{} // over
	for _, m := range c.calls {
		for _, a := range overwrites(m) {
			written[root(m.in[a.In])] = true
		}
	}
	gemm := func(c *call) bool {
		switch c.kernel.(type) {
		case kernel.MatMul, kernel.MatMulNF4:
			return !removed[c] && !written[root(c.in[0])] && !anyComputed(c.in[1:])
		}
		return false
	}
	for _, last := range c.calls {
		if _, ok := last.kernel.(kernel.SwiGLU); !ok {
			continue
		}
		gate, up := last.in[0].call, last.in[1].call
		if gate == nil || up == nil || gate == up || !gemm(gate) || !gemm(up) || gate.in[0] != up.in[0] ||
			uses[last.in[0]] != 1 || uses[last.in[1]] != 1 ||
			gate.segment != last.segment || up.segment != last.segment {
			continue
		}
		if one, ok := kernel.NewFewRows([]kernel.Kernel{gate.kernel, up.kernel}, true, types(gate.in)); ok {
			last.kernel, last.in = one, append(slices.Clone(gate.in), up.in[1:]...)
			removed[gate], removed[up] = true, true
		}
	}
	readers := map[*Value][]*call{} // GEMMs by their rows
	var rows []*Value
	for _, c := range c.calls {
		if gemm(c) {
			if readers[c.in[0]] == nil {
				rows = append(rows, c.in[0])
			}
			readers[c.in[0]] = append(readers[c.in[0]], c)
		}
	}
	for _, x := range rows {
		members := readers[x]
		if len(members) < 2 || len(members) > 3 {
			continue
		}
		one, ok := kernel.NewFewRows(kernels(members), false, types(members[0].in))
		first := members[0]
		if !ok || slices.ContainsFunc(members, func(m *call) bool { return m.segment != first.segment }) {
			continue
		}
		first.kernel = one
		for _, m := range members[1:] {
			first.in, first.out = append(slices.Clone(first.in), m.in[1:]...), append(slices.Clone(first.out), m.out...)
			removed[m] = true
		}
		takeOutputs(first)
	}
	c.calls = slices.DeleteFunc(c.calls, func(c *call) bool { return removed[c] })
	return nil
}

func kernels(calls []*call) []kernel.Kernel {
	all := make([]kernel.Kernel, len(calls))
	for i, c := range calls {
		all[i] = c.kernel
	}
	return all
}

// anyComputed tells whether a value is the result of a call.
func anyComputed(vs []*Value) bool {
	return slices.ContainsFunc(vs, func(v *Value) bool { return v.call != nil })
}
