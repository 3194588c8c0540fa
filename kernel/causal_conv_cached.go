package kernel

import "fmt"

// CausalConvCached is CausalConv of the next tokens of several sequences, each with the last K-1 rows of its earlier tokens in a slot.
//
//	x f[M,C], w w[C,K], cuQ i32[S+1], cuK i32[S+1], state f[P,(K-1)*C] -> y f[M,C], state'
//
// Sequence s has the rows cuQ[s]..cuQ[s+1] of cuK[s+1]-cuK[s] tokens in all, and the slot cuK[s]/Tokens. Where it has no earlier
// token, what the slot holds is not read. A sequence without a row keeps its slot.
type CausalConvCached struct {
	Tokens int // of a slot's sequence at most
}

func (CausalConvCached) Name() string { return "causal_conv_cached" }

func (o CausalConvCached) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "w[C,K]", "i32[S]", "i32[S]", "f[P,L]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 4); err != nil {
		return nil, err
	}
	if err := checkConv(in, d); err != nil {
		return nil, err
	}
	if d.At('L') != (d.At('K')-1)*d.At('C') {
		return nil, fmt.Errorf("input 4 is %v, want %d columns: %d rows of %d", in[4], (d.At('K')-1)*d.At('C'), d.At('K')-1, d.At('C'))
	}
	if o.Tokens < 1 {
		return nil, fmt.Errorf("attribute Tokens is %d, want at least 1", o.Tokens)
	}
	return []Type{in[0], in[4]}, nil
}

func (CausalConvCached) Overwrites() []Alias { return []Alias{{1, 4}} }

func (o CausalConvCached) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], causalConvCached[float32], causalConvCached[float64])(c, o, in, out)
}

func causalConvCached[F Float](c *CPU, a CausalConvCached, in, out []Tensor) func() {
	o, load := newConv[F](in[0], in[1], in[2])
	y, state, cuK, width, kept := Floats[F](out[0]), Floats[F](out[1]), in[3].I32(), in[0].Shape[1], len(o.taps)-1
	slots := in[4].Shape[0]
	one := func(s int) {
		first, end := int(o.cu[s]), min(int(o.cu[s+1]), o.rows)
		slot := int(cuK[s]) / a.Tokens
		if first >= end || slot >= slots {
			return
		}
		mem := state[slot*kept*width:][:kept*width]
		if int(cuK[s+1]-cuK[s]) <= end-first {
			clear(mem)
		}
		before := func(back int) []F { return mem[(kept-back)*width:][:width] }
		for t := first; t < end; t++ {
			row := y[t*width:][:width]
			o.sum(row, t, first, before)
			o.loops.SwiGLU(row, row, o.ones)
		}
		n := min(end-first, kept)
		copy(mem, mem[n*width:])
		copy(mem[(kept-n)*width:], o.x[(end-n)*width:end*width])
	}
	return after(load, func() {
		from, to := o.span()
		clear(y[:from*width])
		clear(y[to*width:])
		c.Pool.Parallel(len(o.cu)-1, one)
	})
}

// Cost is of the rows alone, with what their sequences kept of earlier ones.
func (CausalConvCached) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in[:4], out[:1], out[0], 2*in[1].Shape[1]+4)
}
