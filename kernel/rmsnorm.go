package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// RMSNorm scales every row to root mean square one, then each column by a weight
// (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019).
//
//	x f[M,C], w w[C] -> y f[M,C] = w*(x*rstd), rstd f[M] = 1/sqrt(mean(x^2) + Eps)
//
// With Heads H above 1 a row is H heads of D elements, each of which is normed by itself with the same weight, as
// Qwen3 does with queries and keys (2025, arXiv 2505.09388; Henry et al., "Query-Key Normalization", 2020):
//
//	x f[M,H*D], w w[D] -> y f[M,H*D], rstd f[M*H]
//
// PlusOne has 1 + w in place of w, added in the type that is computed in: Gemma stores its weights so (Gemma Team, 2024).
type RMSNorm struct {
	Eps     float64
	Heads   int // 0 stands for 1
	PlusOne bool
}

// Cheap: its output costs less to recompute than to keep.
func (RMSNorm) Cheap() {}

func (RMSNorm) Name() string { return "rmsnorm" }

func (o RMSNorm) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "w[D]")
	if err != nil {
		return nil, err
	}
	if err := headsOf(in[0], o.Heads, d.At('D')); err != nil {
		return nil, err
	}
	if !(o.Eps >= 0) {
		return nil, fmt.Errorf("attribute Eps is %v, want zero or more", o.Eps)
	}
	return []Type{in[0], T(in[0].DType, d.At('M')*max(o.Heads, 1))}, nil
}

// headsOf checks that a row of x is so many heads, 0 standing for 1, of size elements.
func headsOf(x Type, heads, size int) error {
	switch {
	case heads < 0:
		return fmt.Errorf("attribute Heads is %d, want zero or more", heads)
	case max(heads, 1)*size != x.Shape[1]:
		return fmt.Errorf("input 0 is %v, want %d heads of %d elements, as the weight has", x, max(heads, 1), size)
	}
	return nil
}

func (o RMSNorm) Grads() Backward {
	return Backward{
		Calls: []Call{
			{RMSNormGrad{o.Heads, o.PlusOne}, []Ref{In(0), In(1), Out(1), Upstream()}},
			{RMSNormWeightGrad{o.Heads}, []Ref{In(0), Out(1), Upstream()}}, // where the weight is trained
		},
		Grads: []Ref{FromCall(0, 0), FromCall(1, 0)},
	}
}

func (o RMSNorm) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], rmsnorm[float32], rmsnorm[float64])(c, o, in, out)
}

func rmsnorm[F Float](c *CPU, o RMSNorm, in, out []Tensor) func() {
	x, y, rstd := Floats[F](in[0]), Floats[F](out[0]), Floats[F](out[1])
	width, l := in[1].Shape[0], simd.Best[F]()
	w, load := normWeight[F](in[1], o.PlusOne)
	return after(load, c.Range(len(rstd), rowGrain(width), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			x := x[i*width:][:width]
			r := F(1 / math.Sqrt(simd.LongDot(l, x, x)/float64(width)+o.Eps))
			rstd[i] = r
			l.ScaleMul(y[i*width:][:width], x, r, w)
		}
	}))
}

// normWeight is a norm's weight in a body's type, with one added where it is stored less one, and the work that makes it so at
// the start of every run.
func normWeight[F Float](t Tensor, plusOne bool) (row []F, load func()) {
	stored, load := frozenRow[F](t)
	if !plusOne {
		return stored, load
	}
	row = make([]F, len(stored))
	return row, after(load, func() {
		for i, w := range stored {
			row[i] = 1 + w
		}
	})
}

// RMSNormGrad is the gradient of RMSNorm for its first input.
//
//	x f[M,C], w w[C], rstd f[M], dy f[M,C] -> dx f[M,C] = rstd*(dy*w - xhat*mean(dy*w*xhat)), xhat = x*rstd
//
// With Heads it is that of each head: w w[D], rstd f[M*H]. PlusOne is as there.
type RMSNormGrad struct {
	Heads   int
	PlusOne bool
}

func (RMSNormGrad) Name() string { return "rmsnorm_grad" }

func (o RMSNormGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "w[D]", "f[R]", "f[M,C]")
	if err != nil {
		return nil, err
	}
	if err := headsOf(in[0], o.Heads, d.At('D')); err != nil {
		return nil, err
	}
	if err := rowsOf(in[2], d.At('M')*max(o.Heads, 1), 2); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 2, 3); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

// rowsOf checks that rstd, the i-th input, has an element for each row that is normed.
func rowsOf(rstd Type, rows, i int) error {
	if rstd.Shape[0] != rows {
		return fmt.Errorf("input %d is %v, want %d elements, one for each row or head", i, rstd, rows)
	}
	return nil
}

func (RMSNormGrad) InPlace() []Alias { return []Alias{{0, 3}} }

func (o RMSNormGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], rmsnormGrad[float32], rmsnormGrad[float64])(c, o, in, out)
}

func rmsnormGrad[F Float](c *CPU, o RMSNormGrad, in, out []Tensor) func() {
	x, rstd, dy, dx := Floats[F](in[0]), Floats[F](in[2]), Floats[F](in[3]), Floats[F](out[0])
	width, l := in[1].Shape[0], simd.Best[F]()
	w, load := normWeight[F](in[1], o.PlusOne)
	return after(load, c.Range(len(rstd), rowGrain(width), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			x, dx, r := x[i*width:][:width], dx[i*width:][:width], rstd[i]
			l.ScaleMul(dx, dy[i*width:][:width], 1, w)
			mean := simd.LongDot(l, dx, x) / float64(width)
			l.Blend(dx, r, x, F(-float64(r)*float64(r)*float64(r)*mean))
		}
	}))
}

func (RMSNorm) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 4) }

func (RMSNormGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 7) }

func (RMSNorm) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType, F32}
}

func (RMSNormLowBits) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, U8}, []DType{ComputeType, F32}
}

func (o AddRMSNorm) Stored(in []DType) (want, out []DType) {
	want, out = []DType{ComputeType, term(in[1]), ComputeType}, []DType{ComputeType}
	if o.Carried {
		want = append(want, U8)
	}
	if o.LowBits {
		out = append(out, U8)
	}
	return want, append(out, ComputeType, F32)
}

func (RMSNormGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, ComputeType}, []DType{ComputeType}
}

func (RMSNormGradTo) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, ComputeType, ComputeType}, []DType{ComputeType}
}
