package nn

import (
	"errors"

	"github.com/tierlora/tierlora/kernel"
)

// Mamba describes a Mamba-2 layer.
type Mamba struct {
	kernel.StateSpace
	HeadSize int // columns of a head
	Filter   int // window of the convolution in tokens
	ConvBias bool
	Bias     bool // biases of in_proj and out_proj
	Eps      float64
	// NormGroups is the number of equal parts of a row that the norm behind the scan norms by themselves; 0 = the whole
	// row at once.
	NormGroups int
	NoNorm     bool // there is no norm behind the scan
	// Scales are factors of in_proj's five parts: the gate, what the heads take up, B, C and the time steps; nil =
	// none.
	Scales []float64
}

// Mamba2 is out_proj(norm(scan(convolution(in_proj x)))): [M,C] -> [M,C]. in_proj has the gate, what the heads take up,
// B, C and the time steps side by side; the convolution goes over the middle three (kernel.ColumnsConv), and the scan
// multiplies what it reads by the gate's SiLU (kernel.StateSpace). The states per sequence do not grow with the length.
func Mamba2(n *Net, name string, x *Value, in Batch, m Mamba) *Value {
	y := x
	n.In(name, func() {
		width, inner := x.Width(), m.Heads*m.HeadSize
		filtered := inner + 2*m.Groups*m.State
		parts := n.Linear("in_proj", width, inner+filtered+m.Heads, m.Bias).Apply(x)
		if m.Scales != nil {
			parts = ScaleColumns(n, parts, m.partScales(n, inner))
		}
		filter := n.add(n.Scope()+".conv1d.weight", []int{filtered, 1, m.Filter},
			kernel.T(n.Float(), filtered, m.Filter))
		each := func(name string, size int) *Value {
			return n.add(n.Scope()+"."+name, []int{size}, kernel.T(n.Float(), size))
		}
		var bias *Value
		if m.ConvBias {
			bias = each("conv1d.bias", filtered)
		} else {
			bias = Constant(n, n.Scope()+".conv1d.no_bias", func(dst []float64) { clear(dst) }, filtered)
		}
		scales := []*Value{each("dt_bias", m.Heads), each("A_log", m.Heads), each("D", m.Heads)}
		if n.Ranks() > 1 {
			n.Fail(errors.New("a state-space layer goes over a sequence token by token, which ranks do not share: " +
				"set training.context_parallel_size to 1"))
			return
		}
		in.refusePrefix(n, "a state-space layer goes over a sequence token by token")
		conv := kernel.ColumnsConv{From: inner}
		var h *Value // [M,inner]
		if c := in.Cache; c == nil {
			parts = n.Apply(conv, parts, filter, bias, in.CuQ)
			h = n.Apply(m.StateSpace, append(append([]*Value{parts}, scales...), in.CuQ)...)
		} else {
			c.States = true
			state := func(what string, numbers int) *Value {
				return c.state(n, what, kernel.T(n.Float(), c.Rows/c.Tokens, numbers))
			}
			parts = n.ApplyAll(kernel.ColumnsConvCached{From: inner, Tokens: c.Tokens}, parts, filter, bias, in.CuQ,
				in.CuK, state("conv_state", (m.Filter-1)*filtered))[0]
			h = n.ApplyAll(kernel.StateSpaceCached{Scan: m.StateSpace, Tokens: c.Tokens},
				append(append([]*Value{parts}, scales...), in.CuQ, in.CuK, state("ssm_state", inner*m.State))...)[0]
		}
		if !m.NoNorm {
			h = GroupsRMSNorm(n, "norm", h, m.NormGroups, m.Eps)
		}
		y = n.Linear("out_proj", inner, width, m.Bias).Apply(h)
	})
	return y
}

// partScales is a factor for each column of in_proj.
func (m Mamba) partScales(n *Net, inner int) *Value {
	shared := m.Groups * m.State
	return Constant(n, "factors of in_proj", func(dst []float64) {
		for part, width := range []int{inner, inner, shared, shared, m.Heads} {
			for i := range width {
				dst[i] = m.Scales[part]
			}
			dst = dst[width:]
		}
	}, 2*inner+2*shared+m.Heads)
}
