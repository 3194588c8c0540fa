package kernel

import "fmt"

// ShortConv is the gated short convolution of LFM2 (Liquid AI, 2025): a filter of every column over the last K tokens
// of its sequence, between two gates. It has no activation and no bias.
//
//	x f[M,3C], w w[C,K], cu i32[S+1] -> y f[M,C] = x1*s,  u = x0*x2,  s[t,c] = sum(w[c,j] * u[t-K+1+j,c], j = 0..K-1)
//
// x0, x1 and x2 are the thirds of x's columns. Sequence s has the rows cu[s]..cu[s+1]; before its first row there are
// zeros. A row that is in no sequence gives zeros.
type ShortConv struct{}

func (ShortConv) Name() string { return "short_conv" }

func (ShortConv) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "w[C,K]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if err := checkShortConv(in, d); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('M'), d.At('C'))}, nil
}

// checkShortConv checks the filter, and that input 0 has three columns for each of its rows.
func checkShortConv(in []Type, d Dims) error {
	if d.At('W') != 3*d.At('C') {
		return fmt.Errorf("input 0 is %v, want %d columns, three for each of the filter %v", in[0], 3*d.At('C'), in[1])
	}
	return checkConv(in, d)
}

func (ShortConv) Grads() Backward {
	return Backward{
		Calls: []Call{{ShortConvGrad{}, []Ref{In(0), In(1), In(2), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), {}, {}},
	}
}

func (ShortConv) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], shortConv[float32], shortConv[float64])(c, in, out)
}

// gated returns the thirds of row t of x.
func gated[F Float](x []F, t, width int) (first, second, third []F) {
	row := x[t*3*width:][:3*width]
	return row[:width], row[width:][:width], row[2*width:]
}

// gatedSum is s of row t of a sequence that begins at first. before gives the u of rows before that; nil = zeros.
func (o *conv[F]) gatedSum(s []F, t, first int, before func(back int) []F) {
	clear(s)
	for j, tap := range o.taps {
		from := t - len(o.taps) + 1 + j
		switch {
		case from >= first:
			a, _, b := gated(o.x, from, len(s))
			for c, w := range tap {
				s[c] += w * (a[c] * b[c])
			}
		case before != nil:
			u := before(first - from)
			for c, w := range tap {
				s[c] += w * u[c]
			}
		}
	}
}

func shortConv[F Float](c *CPU, in, out []Tensor) func() {
	o, load := newConv[F](in[0], in[1], in[2])
	y, width := Floats[F](out[0]), out[0].Shape[1]
	return after(load, c.Range(o.rows, convRows, func(lo, hi int) {
		clear(y[lo*width : hi*width])
		o.sequences(lo, hi, func(lo, hi, first, _ int) {
			for t := lo; t < hi; t++ {
				row := y[t*width:][:width]
				o.gatedSum(row, t, first, nil)
				_, gate, _ := gated(o.x, t, width)
				for c := range row {
					row[c] *= gate[c]
				}
			}
		})
	}))
}

// ShortConvGrad is the gradient of ShortConv for x.
//
//	x f[M,3C], w w[C,K], cu i32[S+1], dy f[M,C] -> dx f[M,3C]
//	ds = dy*x1,  du[t,c] = sum(w[c,j] * ds[t+K-1-j,c], j = 0..K-1);  dx0 = du*x2, dx1 = dy*s, dx2 = du*x0
type ShortConvGrad struct{}

func (ShortConvGrad) Name() string { return "short_conv_grad" }

func (ShortConvGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "w[C,K]", "i32[S]", "f[M,C]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 3); err != nil {
		return nil, err
	}
	return []Type{in[0]}, checkShortConv(in, d)
}

func (ShortConvGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], shortConvGrad[float32], shortConvGrad[float64])(c, in, out)
}

func shortConvGrad[F Float](c *CPU, in, out []Tensor) func() {
	o, load := newConv[F](in[0], in[1], in[2])
	dy, dx, width, behind := Floats[F](in[3]), Floats[F](out[0]), in[1].Shape[0], len(o.taps)-1
	return after(load, c.Range(o.rows, convRows, func(lo, hi int) {
		clear(dx[lo*3*width : hi*3*width])
		o.sequences(lo, hi, func(lo, hi, first, end int) {
			for t := lo; t < hi; t++ {
				a, _, b := gated(o.x, t, width)
				da, dgate, du := gated(dx, t, width)
				o.gatedSum(dgate, t, first, nil)
				for j, tap := range o.taps {
					from := t + behind - j
					if from >= end {
						continue
					}
					_, gate, _ := gated(o.x, from, width)
					up := dy[from*width:][:width]
					for c, w := range tap {
						du[c] += w * (up[c] * gate[c])
					}
				}
				for c, up := range dy[t*width:][:width] {
					dgate[c] *= up
					da[c], du[c] = du[c]*b[c], du[c]*a[c]
				}
			}
		})
	}))
}

// ShortConvCached is ShortConv of the next tokens of several sequences, each with u of the last K-1 rows of its earlier
// tokens in a slot.
//
//	x f[M,3C], w w[C,K], cuQ i32[S+1], cuK i32[S+1], state f[P,(K-1)*C] -> y f[M,C], state'
//
// Sequence s has the rows cuQ[s]..cuQ[s+1] of cuK[s+1]-cuK[s] tokens in all, and the slot cuK[s]/Tokens. Where it has
// no earlier token, what the slot holds is not read. A sequence without a row keeps its slot.
type ShortConvCached struct {
	Tokens int // of a slot's sequence at most
}

func (ShortConvCached) Name() string { return "short_conv_cached" }

func (o ShortConvCached) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "w[C,K]", "i32[S]", "i32[S]", "f[P,L]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 4); err != nil {
		return nil, err
	}
	if err := checkShortConv(in, d); err != nil {
		return nil, err
	}
	if d.At('L') != (d.At('K')-1)*d.At('C') {
		return nil, fmt.Errorf("input 4 is %v, want %d columns: %d rows of %d", in[4], (d.At('K')-1)*d.At('C'),
			d.At('K')-1, d.At('C'))
	}
	if o.Tokens < 1 {
		return nil, fmt.Errorf("attribute Tokens is %d, want at least 1", o.Tokens)
	}
	return []Type{T(in[0].DType, d.At('M'), d.At('C')), in[4]}, nil
}

func (ShortConvCached) Overwrites() []Alias { return []Alias{{1, 4}} }

func (o ShortConvCached) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], shortConvCached[float32], shortConvCached[float64])(c, o, in, out)
}

func shortConvCached[F Float](c *CPU, a ShortConvCached, in, out []Tensor) func() {
	o, load := newConv[F](in[0], in[1], in[2])
	y, state, cuK, width, kept := Floats[F](out[0]), Floats[F](out[1]), in[3].I32(), in[1].Shape[0], len(o.taps)-1
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
			o.gatedSum(row, t, first, before)
			_, gate, _ := gated(o.x, t, width)
			for c := range row {
				row[c] *= gate[c]
			}
		}
		n := min(end-first, kept)
		copy(mem, mem[n*width:])
		for i := range n {
			a, _, b := gated(o.x, end-n+i, width)
			u := mem[(kept-n+i)*width:][:width]
			for c := range u {
				u[c] = a[c] * b[c]
			}
		}
	}
	return after(load, func() {
		from, to := o.span()
		clear(y[:from*width])
		clear(y[to*width:])
		c.Pool.Parallel(len(o.cu)-1, one)
	})
}

func (ShortConv) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in, out, out[0], 3*in[1].Shape[1]+1)
}

func (ShortConvGrad) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in, out, in[3], 6*in[1].Shape[1]+4)
}

// Cost counts the rows alone, with the earlier rows that their sequences keep.
func (ShortConvCached) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in[:4], out[:1], out[0], 3*in[1].Shape[1]+1)
}

func (ShortConv) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{ComputeType}
}

func (ShortConvGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, ComputeType}, []DType{ComputeType}
}

// Stored: a slot holds u rounded as activations are.
func (ShortConvCached) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, I32, ComputeType}, []DType{ComputeType, ComputeType}
}
