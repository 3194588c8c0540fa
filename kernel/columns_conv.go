package kernel

import "fmt"

// ColumnsConv is the causal convolution of a Mamba-2 layer (Dao and Gu, "Transformers are SSMs", 2024): it filters
// neighbouring columns over the last K tokens of their sequence, adds a bias and applies SiLU. It copies the other
// columns, so that the scan behind it (StateSpace) reads one matrix.
//
//	x f[M,W], w w[C,K], b w[C], cu i32[S+1] -> y f[M,W]
//	y[t,From+c] = silu(b[c] + sum(w[c,j] * x[t-K+1+j,From+c], j = 0..K-1)), y = x in the other columns
//
// Sequence s has the rows cu[s]..cu[s+1]; before its first row there are zeros. A row that is in no sequence gives
// zeros in all columns.
type ColumnsConv struct{ From int }

// Name returns the operation's stem.
func (ColumnsConv) Name() string { return "columns_conv" }

// Shape checks the inputs and returns the outputs' types.
func (o ColumnsConv) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "w[C,K]", "w[C]", "i32[S]")
	if err != nil {
		return nil, err
	}
	return []Type{in[0]}, o.check(in, d)
}

func (o ColumnsConv) check(in []Type, d Dims) error {
	if o.From < 0 || o.From+d.At('C') > d.At('W') {
		return fmt.Errorf("input 0 is %v: it has no columns %d to %d for the filter %v", in[0], o.From,
			o.From+d.At('C')-1, in[1])
	}
	return checkConv([]Type{in[0], in[1], in[3]}, d)
}

// Grads computes the gradient of input 0.
func (o ColumnsConv) Grads() Backward {
	return Backward{
		Calls: []Call{{ColumnsConvGrad(o), []Ref{In(0), In(1), In(2), In(3), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), {}, {}, {}},
	}
}

// CPU binds the operation to memory.
func (o ColumnsConv) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], columnsConv[float32], columnsConv[float64])(c, o, in, out)
}

// newColumnsConv returns a convolution of the columns from From on, and the work that reads filter and bias at the
// start of every run.
func newColumnsConv[F Float](a ColumnsConv, x, w, b, cu Tensor) (*conv[F], func()) {
	o, load := newConv[F](x, w, cu)
	bias, loadBias := frozenRow[F](b)
	o.from, o.bias = a.From, bias
	if loadBias == nil {
		return o, load
	}
	return o, after(load, loadBias)
}

// copyOthers copies the columns of row t that are not filtered.
func (o *conv[F]) copyOthers(to, from []F, t int) {
	to, from = to[t*o.stride:][:o.stride], from[t*o.stride:][:o.stride]
	copy(to[:o.from], from)
	copy(to[o.from+o.width():], from[o.from+o.width():])
}

func columnsConv[F Float](c *CPU, a ColumnsConv, in, out []Tensor) func() {
	o, load := newColumnsConv[F](a, in[0], in[1], in[2], in[3])
	y, width := Floats[F](out[0]), o.width()
	return after(load, c.Range(o.rows, convRows, func(lo, hi int) {
		clear(y[lo*o.stride : hi*o.stride])
		o.sequences(lo, hi, func(lo, hi, first, _ int) {
			for t := lo; t < hi; t++ {
				row := y[t*o.stride+o.from:][:width]
				o.sum(row, t, first, nil)
				o.loops.SwiGLU(row, row, o.ones)
				o.copyOthers(y, o.x, t)
			}
		})
	}))
}

// ColumnsConvGrad is the gradient of ColumnsConv for x.
//
//	x f[M,W], w w[C,K], b w[C], cu i32[S+1], dy f[M,W] -> dx f[M,W]
//	ds = dy * silu'(s),  dx[t,From+c] = sum(w[c,j] * ds[t+K-1-j,c], j = 0..K-1), dx = dy in the other columns
type ColumnsConvGrad ColumnsConv

// Name returns the operation's stem.
func (ColumnsConvGrad) Name() string { return "columns_conv_grad" }

// Shape checks the inputs and returns the outputs' types.
func (o ColumnsConvGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "w[C,K]", "w[C]", "i32[S]", "f[M,W]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 4); err != nil {
		return nil, err
	}
	return []Type{in[0]}, ColumnsConv(o).check(in, d)
}

// Scratch returns the bytes of all workers' memory.
func (ColumnsConvGrad) Scratch(in []Type, workers int) int64 {
	return int64(workers) * columnsConvSlot(in[0], in[1])
}

// columnsConvSlot returns a worker's memory in bytes: ds of its rows and of the K-1 behind them, and a row that is not
// read.
func columnsConvSlot(x, w Type) int64 {
	return int64(convRows+w.Shape[1]) * int64(w.Shape[0]*x.DType.Size())
}

// CPU binds the operation to memory.
func (o ColumnsConvGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], columnsConvGrad[float32], columnsConvGrad[float64])(c, ColumnsConv(o), in, out)
}

func columnsConvGrad[F Float](c *CPU, a ColumnsConv, in, out []Tensor) func() {
	o, load := newColumnsConv[F](a, in[0], in[1], in[2], in[3])
	dy, dx, width, behind := Floats[F](in[4]), Floats[F](out[0]), o.width(), len(o.taps)-1
	slots := newSlots[F](c.Scratch, c.Workers(), columnsConvSlot(in[0].Type, in[1].Type))
	return after(load, c.Range(o.rows, convRows, func(lo, hi int) {
		slot, mem := slots.take()
		defer slots.give(slot)
		unread, mem := mem[:width], mem[width:]
		clear(dx[lo*o.stride : hi*o.stride])
		o.sequences(lo, hi, func(lo, hi, first, end int) {
			last := min(hi+behind, end)
			for t := lo; t < last; t++ {
				ds := mem[(t-lo)*width:][:width]
				o.sum(ds, t, first, nil)
				o.loops.SwiGLUGrad(ds, unread, ds, o.ones, dy[t*o.stride+o.from:][:width])
			}
			for t := lo; t < hi; t++ {
				o.copyOthers(dx, dy, t)
				row := dx[t*o.stride+o.from:][:width]
				for j, tap := range o.taps {
					if from := t + behind - j; from < last {
						ds := mem[(from-lo)*width:][:width]
						for c, w := range tap {
							row[c] += w * ds[c]
						}
					}
				}
			}
		})
	}))
}

// ColumnsConvCached is ColumnsConv of the next tokens of several sequences. Each sequence has the filtered columns of
// the last K-1 rows of its earlier tokens in a slot.
//
//	x f[M,W], w w[C,K], b w[C], cuQ i32[S+1], cuK i32[S+1], state f[P,(K-1)*C] -> y f[M,W], state'
//
// Slots and sequences are as in CausalConvCached.
type ColumnsConvCached struct {
	From   int
	Tokens int // the most tokens of a slot's sequence
}

// Name returns the operation's stem.
func (ColumnsConvCached) Name() string { return "columns_conv_cached" }

// Shape checks the inputs and returns the outputs' types.
func (o ColumnsConvCached) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "w[C,K]", "w[C]", "i32[S]", "i32[S]", "f[P,L]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 5); err != nil {
		return nil, err
	}
	if err := (ColumnsConv{o.From}).check(in, d); err != nil {
		return nil, err
	}
	if d.At('L') != (d.At('K')-1)*d.At('C') {
		return nil, fmt.Errorf("input 5 is %v, want %d columns: %d rows of %d", in[5], (d.At('K')-1)*d.At('C'),
			d.At('K')-1, d.At('C'))
	}
	if o.Tokens < 1 {
		return nil, fmt.Errorf("attribute Tokens is %d, want at least 1", o.Tokens)
	}
	return []Type{in[0], in[5]}, nil
}

// Overwrites keeps the slots' states in place.
func (ColumnsConvCached) Overwrites() []Alias { return []Alias{{1, 5}} }

// CPU binds the operation to memory.
func (o ColumnsConvCached) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], columnsConvCached[float32], columnsConvCached[float64])(c, o, in, out)
}

func columnsConvCached[F Float](c *CPU, a ColumnsConvCached, in, out []Tensor) func() {
	o, load := newColumnsConv[F](ColumnsConv{a.From}, in[0], in[1], in[2], in[3])
	y, state, cuK, width, kept := Floats[F](out[0]), Floats[F](out[1]), in[4].I32(), o.width(), len(o.taps)-1
	slots := in[5].Shape[0]
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
			row := y[t*o.stride+o.from:][:width]
			o.sum(row, t, first, before)
			o.loops.SwiGLU(row, row, o.ones)
			o.copyOthers(y, o.x, t)
		}
		n := min(end-first, kept)
		copy(mem, mem[n*width:])
		for i := range n {
			copy(mem[(kept-n+i)*width:][:width], o.row(end-n+i))
		}
	}
	return after(load, func() {
		from, to := o.span()
		clear(y[:from*o.stride])
		clear(y[to*o.stride:])
		c.Pool.Parallel(len(o.cu)-1, one)
	})
}

// Cost counts the bytes of inputs and outputs, and the multiply-adds.
func (ColumnsConv) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in, out, T(F32, in[0].Shape[0], in[1].Shape[0]), 2*in[1].Shape[1]+4)
}

// Cost counts the bytes of inputs and outputs, and the multiply-adds.
func (ColumnsConvGrad) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in, out, T(F32, in[0].Shape[0], in[1].Shape[0]), 4*in[1].Shape[1]+8)
}

// Cost counts the rows alone, with the earlier rows that their sequences keep.
func (ColumnsConvCached) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in[:5], out[:1], T(F32, in[0].Shape[0], in[1].Shape[0]), 2*in[1].Shape[1]+4)
}

// Stored keeps the bias in fp32.
func (ColumnsConv) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, I32}, []DType{ComputeType}
}

// Stored keeps the bias in fp32.
func (ColumnsConvGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, I32, ComputeType}, []DType{ComputeType}
}

// ScratchGPU returns 0: the device computes the filter's sums again in registers.
func (ColumnsConvGrad) ScratchGPU([]Type, []Type, int) int64 { return 0 }

// Stored keeps rows in a slot as they are.
func (ColumnsConvCached) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, I32, I32, ComputeType}, []DType{ComputeType, ComputeType}
}
