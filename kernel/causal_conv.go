package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/simd"
)

// CausalConv filters every column over the last K tokens of its sequence and applies SiLU: the short convolution in
// front of linear attention (Yang et al., "Gated Delta Networks", 2024). It is a Conv1d with as many groups as channels
// and without a bias.
//
//	x f[M,C], w w[C,K], cu i32[S+1] -> y f[M,C] = silu(s),  s[t,c] = sum(w[c,j] * x[t-K+1+j,c], j = 0..K-1)
//
// Sequence s has the rows cu[s]..cu[s+1]; before its first row there are zeros. A row that is in no sequence gives
// zeros.
type CausalConv struct{}

func (CausalConv) Name() string { return "causal_conv" }

func (CausalConv) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "w[C,K]", "i32[S]")
	if err != nil {
		return nil, err
	}
	return []Type{in[0]}, checkConv(in, d)
}

func checkConv(in []Type, d Dims) error {
	if d.At('K') < 1 {
		return fmt.Errorf("input 1 is %v: the filter is empty", in[1])
	}
	if d.At('S') < 1 {
		return fmt.Errorf("the sequence bounds are %v, want one more than there are sequences", in[2])
	}
	return nil
}

func (CausalConv) Grads() Backward {
	return Backward{
		Calls: []Call{{CausalConvGrad{}, []Ref{In(0), In(1), In(2), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), {}, {}},
	}
}

func (CausalConv) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], causalConv[float32], causalConv[float64])(c, in, out)
}

// convRows is how many rows a thread takes at a time. It reads up to K-1 more.
const convRows = 16

// conv is what the convolution's bodies share.
type conv[F Float] struct {
	loops  *simd.Loops[F]
	x      []F
	stride int   // from row to row of x
	from   int   // the first of x's columns that are filtered
	taps   [][]F // by j, [C] each
	bias   []F   // [C]; nil = none
	ones   []F
	cu     []int32
	rows   int
}

// newConv also gives the work that lays the filter out at the start of every run.
func newConv[F Float](x, w, cu Tensor) (*conv[F], func()) {
	C, K := w.Shape[0], w.Shape[1]
	o := &conv[F]{loops: simd.Best[F](), x: Floats[F](x), stride: x.Shape[1], taps: make([][]F, K), ones: make([]F, C),
		cu: cu.I32(), rows: x.Shape[0]}
	for i := range o.ones {
		o.ones[i] = 1
	}
	for j := range o.taps {
		o.taps[j] = make([]F, C)
	}
	filter, load := frozenRow[F](w)
	return o, after(load, func() {
		for j, tap := range o.taps {
			for c := range tap {
				tap[c] = filter[c*K+j]
			}
		}
	})
}

func (o *conv[F]) width() int       { return len(o.ones) }
func (o *conv[F]) row(t int) []F    { return o.x[t*o.stride+o.from:][:o.width()] }
func (o *conv[F]) span() (a, b int) { return covered(o.cu, o.rows) }

// covered returns the rows that sequences have, which lie one behind the other.
func covered(cu []int32, rows int) (from, to int) {
	return min(int(cu[0]), rows), min(int(cu[len(cu)-1]), rows)
}

// sequences calls f with the part of each sequence that lies in [lo,hi), and with the sequence's bounds.
func (o *conv[F]) sequences(lo, hi int, f func(lo, hi, first, end int)) {
	for s := range len(o.cu) - 1 {
		first, end := int(o.cu[s]), min(int(o.cu[s+1]), o.rows)
		if a, b := max(lo, first), min(hi, end); a < b {
			f(a, b, first, end)
		}
	}
}

// sum is s of row t of a sequence that begins at first. before gives the rows before that; nil = zeros.
func (o *conv[F]) sum(s []F, t, first int, before func(back int) []F) {
	if clear(s); o.bias != nil {
		copy(s, o.bias)
	}
	for j, tap := range o.taps {
		var x []F
		switch from := t - len(o.taps) + 1 + j; {
		case from >= first:
			x = o.row(from)
		case before != nil:
			x = before(first - from)
		default:
			continue
		}
		for c, w := range tap {
			s[c] += w * x[c]
		}
	}
}

func causalConv[F Float](c *CPU, in, out []Tensor) func() {
	o, load := newConv[F](in[0], in[1], in[2])
	y, width := Floats[F](out[0]), in[0].Shape[1]
	return after(load, c.Range(o.rows, convRows, func(lo, hi int) {
		clear(y[lo*width : hi*width])
		o.sequences(lo, hi, func(lo, hi, first, _ int) {
			for t := lo; t < hi; t++ {
				row := y[t*width:][:width]
				o.sum(row, t, first, nil)
				o.loops.SwiGLU(row, row, o.ones)
			}
		})
	}))
}

// CausalConvGrad is the gradient of CausalConv for x.
//
//	x f[M,C], w w[C,K], cu i32[S+1], dy f[M,C] -> dx f[M,C]
//	ds = dy * silu'(s),  dx[t,c] = sum(w[c,j] * ds[t+K-1-j,c], j = 0..K-1)
type CausalConvGrad struct{}

func (CausalConvGrad) Name() string { return "causal_conv_grad" }

func (CausalConvGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "w[C,K]", "i32[S]", "f[M,C]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 3); err != nil {
		return nil, err
	}
	return []Type{in[0]}, checkConv(in, d)
}

func (CausalConvGrad) Scratch(in []Type, workers int) int64 {
	return int64(workers) * convGradSlot(in)
}

// convGradSlot returns a thread's memory in bytes: ds of its rows and of the K-1 behind them, and a row that is not
// read.
func convGradSlot(in []Type) int64 {
	return int64(convRows+in[1].Shape[1]) * int64(in[0].Shape[1]*in[0].DType.Size())
}

func (CausalConvGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], causalConvGrad[float32], causalConvGrad[float64])(c, in, out)
}

func causalConvGrad[F Float](c *CPU, in, out []Tensor) func() {
	o, load := newConv[F](in[0], in[1], in[2])
	dy, dx, width, behind := Floats[F](in[3]), Floats[F](out[0]), in[0].Shape[1], len(o.taps)-1
	slots := newSlots[F](c.Scratch, c.Workers(), convGradSlot([]Type{in[0].Type, in[1].Type}))
	return after(load, c.Range(o.rows, convRows, func(lo, hi int) {
		slot, mem := slots.take()
		defer slots.give(slot)
		unread, mem := mem[:width], mem[width:]
		clear(dx[lo*width : hi*width])
		o.sequences(lo, hi, func(lo, hi, first, end int) {
			last := min(hi+behind, end)
			for t := lo; t < last; t++ {
				ds := mem[(t-lo)*width:][:width]
				o.sum(ds, t, first, nil)
				o.loops.SwiGLUGrad(ds, unread, ds, o.ones, dy[t*width:][:width])
			}
			for t := lo; t < hi; t++ {
				row := dx[t*width:][:width]
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

func (CausalConv) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in, out, out[0], 2*in[1].Shape[1]+4)
}

func (CausalConvGrad) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in, out, out[0], 4*in[1].Shape[1]+8)
}

func (CausalConv) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{ComputeType}
}

func (CausalConvGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, ComputeType}, []DType{ComputeType}
}

// ScratchGPU: the device works s out again in registers.
func (CausalConvGrad) ScratchGPU([]Type, []Type, int) int64 { return 0 }

func (CausalConvGrad) CheckGPU(in, _ []Type, _ int) error {
	if K := in[1].Shape[1]; K > cuda.ConvTaps {
		return fmt.Errorf("the gradient of a filter of %d taps is not supported on the GPU; up to %d are, and device: cpu takes any", K, cuda.ConvTaps)
	}
	return nil
}

// Stored: a slot holds rows of x as they are.
func (CausalConvCached) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32, I32, ComputeType}, []DType{ComputeType, ComputeType}
}

// CausalConvCached is CausalConv of the next tokens of several sequences, each with the last K-1 rows of its earlier
// tokens in a slot.
//
//	x f[M,C], w w[C,K], cuQ i32[S+1], cuK i32[S+1], state f[P,(K-1)*C] -> y f[M,C], state'
//
// Sequence s has the rows cuQ[s]..cuQ[s+1] of cuK[s+1]-cuK[s] tokens in all, and the slot cuK[s]/Tokens. Where it has
// no earlier token, what the slot holds is not read. A sequence without a row keeps its slot.
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
		return nil, fmt.Errorf("input 4 is %v, want %d columns: %d rows of %d", in[4], (d.At('K')-1)*d.At('C'),
			d.At('K')-1, d.At('C'))
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

// Cost counts the rows alone, with the earlier rows that their sequences keep.
func (CausalConvCached) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in[:4], out[:1], out[0], 2*in[1].Shape[1]+4)
}
