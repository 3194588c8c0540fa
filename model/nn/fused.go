package nn

import "github.com/tierlora/tierlora/kernel"

// A fused projection is one linear layer whose output rows are those of several projections, one after the other. It is
// stored, quantised and adapted as one layer; the operations that read its output use the parts in place.

// fusedAttention is attention with one projection qkv_proj: queries of all heads, then keys, then values.
func (n *Net) fusedAttention(x *Value, in Batch, a Attention) *Value {
	q, kv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	qkv := n.Linear("qkv_proj", x.Width(), q+2*kv, a.QKVBias).Apply(x) // [M,C] -> [M,(H+2K)*D]
	qkv = n.Apply(kernel.RoPE{Heads: a.Heads + a.KVHeads, Rest: a.KVHeads, HeadDim: a.HeadDim,
		Interleaved: a.Interleaved}, qkv, a.RoPE, in.Positions)
	if n.Ranks() > 1 {
		return n.sharedAttention(in, a, qkv)
	}
	if in.Cache == nil {
		return n.Apply(kernel.AttentionQKV(a.over(n, in)), append([]*Value{qkv}, in.bounds(false)...)...)
	}
	part := func(from, width int) *Value { return n.Apply(kernel.Columns{From: from, Width: width}, qkv) }
	key, value := n.cached("key", part(q, kv), in), n.cached("value", part(q+kv, kv), in)
	return n.Apply(a.over(n, in), part(0, q), key, value, in.CuQ, in.CuK)
}

// FusedMLP is MLP with one projection gate_up_proj: the gate's rows, then the up projection's.
func (n *Net) FusedMLP(name string, x *Value, inner int) *Value {
	return GateUpMLP{"gate_up_proj", "down_proj"}.Apply(n, name, x, inner)
}

// GateUpMLP holds the names of the linear layers of an MLP whose gate and up projections are one.
type GateUpMLP struct{ GateUp, Down string }

// Apply does what Net.FusedMLP does, with these names.
func (m GateUpMLP) Apply(n *Net, name string, x *Value, inner int) *Value {
	var y *Value
	n.In(name, func() {
		width := x.Width()
		both := n.Linear(m.GateUp, width, 2*inner, false).Apply(x) // [M,C] -> [M,2F]
		y = n.Linear(m.Down, inner, width, false).Apply(n.Apply(kernel.SwiGLUGateUp{}, both))
	})
	return y
}
