package nn

import (
	"errors"

	"github.com/tierlora/tierlora/kernel"
)

// DeltaNet describes linear attention by the gated delta rule.
type DeltaNet struct {
	KeyHeads, ValueHeads int
	KeySize, ValueSize   int // columns of a head
	Filter               int // window of the convolution in tokens
	Eps                  float64
	// Fused reports that in_proj_qkvz gives queries, keys, values and z, and in_proj_ba both gates, of a key head's
	// parts one after the other (Qwen3-Next).
	Fused bool
}

// GatedDeltaNet is the linear attention of Qwen3.5 and Qwen3-Next, out_proj(norm(o) * silu(z)): [M,C] -> [M,C]. o is
// the result of the gated delta rule (kernel.GatedDelta) over the convolved queries, keys and values of in_proj_qkv
// with the gates of in_proj_b and in_proj_a; z is the output of in_proj_z. Its state per sequence does not grow with
// the length.
func (n *Net) GatedDeltaNet(name string, x *Value, in Batch, a DeltaNet) *Value {
	var y *Value
	n.In(name, func() {
		width, keys, values := x.Width(), a.KeyHeads*a.KeySize, a.ValueHeads*a.ValueSize
		qkv, z, b, decay := a.projections(n, x)
		filter := n.add(n.Scope()+".conv1d.weight", []int{2*keys + values, 1, a.Filter},
			kernel.T(n.Float(), 2*keys+values, a.Filter))
		each := func(name string) *Value {
			return n.add(n.Scope()+"."+name, []int{a.ValueHeads}, kernel.T(n.Float(), a.ValueHeads))
		}
		logA, dt := each("A_log"), each("dt_bias")
		if n.Ranks() > 1 {
			n.Fail(errors.New("linear attention goes over a sequence token by token, which ranks do not share: set " +
				"training.context_parallel_size to 1"))
			y = x
			return
		}
		in.refusePrefix(n, "linear attention goes over a sequence token by token")
		rule := kernel.GatedDelta{KeyHeads: a.KeyHeads, ValueHeads: a.ValueHeads, KeySize: a.KeySize}
		var o *Value // [M,values]
		if c := in.Cache; c == nil {
			qkv = n.Apply(kernel.CausalConv{}, qkv, filter, in.CuQ)
			o = n.Apply(rule, qkv, b, decay, logA, dt, in.CuQ)
		} else {
			c.States = true
			slots := c.Rows / c.Tokens
			state := func(what string, numbers int) *Value {
				return c.state(n, what, kernel.T(n.Float(), slots, numbers))
			}
			qkv = n.ApplyAll(kernel.CausalConvCached{Tokens: c.Tokens}, qkv, filter, in.CuQ, in.CuK,
				state("conv_state", (a.Filter-1)*(2*keys+values)))[0]
			o = n.ApplyAll(kernel.GatedDeltaCached{Rule: rule, Tokens: c.Tokens}, qkv, b, decay, logA, dt,
				in.CuQ, in.CuK,
				state("recurrent_state", values*a.KeySize))[0]
		}
		gated := n.Apply(kernel.SwiGLU{}, z, n.HeadsRMSNorm("norm", o, a.ValueHeads, a.Eps))
		y = n.Linear("out_proj", values, width, false).Apply(gated)
	})
	return y
}

// projections returns queries, keys and values [M,2keys+values] of rows, z [M,values], and the gates b and a
// [M,ValueHeads].
func (a DeltaNet) projections(n *Net, x *Value) (qkv, z, b, decay *Value) {
	width, keys, values := x.Width(), a.KeyHeads*a.KeySize, a.ValueHeads*a.ValueSize
	linear := func(name string, out int) *Value { return n.Linear(name, width, out, false).Apply(x) }
	if !a.Fused {
		return linear("in_proj_qkv", 2*keys+values), linear("in_proj_z", values), linear("in_proj_b", a.ValueHeads),
			linear("in_proj_a", a.ValueHeads)
	}
	each := a.ValueHeads / a.KeyHeads // value heads of a key head
	parts := func(name string, first, rest int, widths ...int) (*Value, *Value) {
		k := kernel.HeadParts{Heads: a.KeyHeads}
		copy(k.Widths[:], widths)
		all := n.Apply(k, linear(name, first+rest))
		columns := func(from, width int) *Value {
			return n.Apply(kernel.HeadColumns{Heads: 1, Of: first + rest, From: from, Width: width}, all)
		}
		return columns(0, first), columns(first, rest)
	}
	qkv, z = parts("in_proj_qkvz", 2*keys+values, values, a.KeySize, a.KeySize, each*a.ValueSize, each*a.ValueSize)
	b, decay = parts("in_proj_ba", a.ValueHeads, a.ValueHeads, each, each)
	return qkv, z, b, decay
}
