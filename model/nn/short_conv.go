package nn

import (
	"errors"

	"github.com/tierlora/tierlora/kernel"
)

// ShortConv is LFM2's short convolution out_proj(c * filter(b * x)): [M,C] -> [M,C]. b, c and x are the thirds of
// in_proj; the filter goes over the last taps tokens of a sequence (kernel.ShortConv). Its state per sequence does not
// grow with the length.
func ShortConv(n *Net, name string, x *Value, in Batch, taps int) *Value {
	y := x
	n.In(name, func() {
		width := x.Width()
		parts := n.Linear("in_proj", width, 3*width, false).Apply(x) // [M,3C]
		filter := n.add(n.Scope()+".conv.weight", []int{width, 1, taps}, kernel.T(n.Float(), width, taps))
		if n.Ranks() > 1 {
			n.Fail(errors.New("a short convolution reads the tokens before, which ranks do not share: set " +
				"training.context_parallel_size to 1"))
			return
		}
		in.refusePrefix(n, "a short convolution reads the tokens before")
		var h *Value
		if c := in.Cache; c == nil {
			h = n.Apply(kernel.ShortConv{}, parts, filter, in.CuQ)
		} else {
			c.States = true
			state := c.state(n, "conv_state", kernel.T(n.Float(), c.Rows/c.Tokens, (taps-1)*width))
			h = n.ApplyAll(kernel.ShortConvCached{Tokens: c.Tokens}, parts, filter, in.CuQ, in.CuK, state)[0]
		}
		y = n.Linear("out_proj", width, width, false).Apply(h)
	})
	return y
}
