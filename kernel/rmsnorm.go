package kernel

import (
	"errors"
	"fmt"
	"math"
	"slices"

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
// PlusOne has 1 + w in place of w, added in the type that is computed in: Gemma stores its weights so (Gemma Team,
// 2024).
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

// normWeight is a norm's weight in a body's type, with one added where it is stored less one, and the work that makes
// it so at the start of every run.
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

// RMSNormWeightGrad is the gradient of RMSNorm for its weight, where a run trains it.
//
//	x f[M,C], rstd f[M], dy f[M,C] -> dw f[C] = sum over rows of dy*x*rstd
//
// With Heads H the sum is over heads too: x, dy f[M,H*D], rstd f[M*H] -> dw f[D].
type RMSNormWeightGrad struct{ Heads int }

func (RMSNormWeightGrad) Name() string { return "rmsnorm_weight" }

func (o RMSNormWeightGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[R]", "f[M,C]")
	if err != nil {
		return nil, err
	}
	size := d.At('C') / max(o.Heads, 1)
	if err := headsOf(in[0], o.Heads, size); err != nil {
		return nil, err
	}
	if err := rowsOf(in[1], d.At('M')*max(o.Heads, 1), 1); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, size)}, nil
}

func (RMSNormWeightGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], rmsnormWeightGrad[float32], rmsnormWeightGrad[float64])(c, in, out)
}

// rmsnormWeightGrad sums columns of a cache line's width in float64, each in the order of the rows.
func rmsnormWeightGrad[F Float](c *CPU, in, out []Tensor) func() {
	const columns = 16
	x, rstd, dy, dw := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2]), Floats[F](out[0])
	width := len(dw)
	return c.Range(width, columns, func(lo, hi int) {
		for ; lo < hi; lo += columns { // one piece may be the whole width
			var sums [columns]float64
			n := min(columns, hi-lo)
			for row, r := range rstd {
				x, dy := x[row*width+lo:][:n], dy[row*width+lo:][:n]
				for j := range x {
					sums[j] += float64(dy[j]) * float64(x[j]) * float64(r)
				}
			}
			for j := range n {
				dw[lo+j] = F(sums[j])
			}
		}
	})
}

// Cost counts two products and a sum for each number.
func (RMSNormWeightGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 3) }

// Stored keeps the gradient in fp32.
func (RMSNormWeightGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, ComputeType}, []DType{F32}
}

// ScratchGPU returns the bytes of the sums of parts of the rows.
func (RMSNormWeightGrad) ScratchGPU(in, out []Type, _ int) int64 {
	return columnParts(in[1].Elems(), out[0])
}

// RMSNormLowBits is RMSNorm of a sum that has low bits (AddLowBits), for plans of a GPU.
//
//	x f[M,C], w w[C], low bits u8[M,C] -> y f[M,C], rstd f[M]
type RMSNormLowBits struct {
	Eps     float64
	PlusOne bool // as in RMSNorm
}

// Cheap: its output costs less to recompute than to keep.
func (RMSNormLowBits) Cheap() {}

func (RMSNormLowBits) Name() string { return "rmsnorm" }

func (o RMSNormLowBits) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]", "w[C]", "u8[M,C]"); err != nil {
		return nil, err
	}
	return RMSNorm{Eps: o.Eps, PlusOne: o.PlusOne}.Shape(in[:2])
}

func (o RMSNormLowBits) CPU(c *CPU, in, out []Tensor) func() {
	return RMSNorm{Eps: o.Eps, PlusOne: o.PlusOne}.CPU(c, in[:2], out)
}

// AddRMSNorm is a residual sum and the norm of it in one kernel, for plans of a GPU. LowBits: the sum gets
// them, as that of AddLowBits; Carried: x has them. r may be stored as fp32.
//
//	x, r f[M,C], w w[C], low bits of x u8[M,C] if Carried -> sum f[M,C] = x + r, its low bits u8[M,C] if LowBits, y f[M,C], rstd f[M]
type AddRMSNorm struct {
	Eps              float64
	PlusOne          bool // as in RMSNorm
	LowBits, Carried bool
}

func (AddRMSNorm) Name() string { return "rmsnorm" }

// add returns the sum alone.
func (o AddRMSNorm) add() Kernel {
	if o.LowBits {
		return AddLowBits{o.Carried}
	}
	return Add{}
}

// norm returns the norm alone.
func (o AddRMSNorm) norm() RMSNorm { return RMSNorm{Eps: o.Eps, PlusOne: o.PlusOne} }

func (o AddRMSNorm) Shape(in []Type) ([]Type, error) {
	terms := slices.Clone(in)
	if len(in) > 2 {
		terms = slices.Delete(terms, 2, 3)
	}
	sum, err := o.add().Shape(terms)
	if err != nil {
		return nil, err
	}
	if len(in) < 3 {
		return nil, errors.New("takes a weight besides the sum's terms")
	}
	norm, err := o.norm().Shape([]Type{in[0], in[2]})
	return append(sum, norm...), err
}

func (o AddRMSNorm) InPlace() []Alias {
	at := []Alias{{0, 0}, {0, 1}}
	if o.Carried {
		at = append(at, Alias{1, 3})
	}
	return at
}

func (o AddRMSNorm) CPU(c *CPU, in, out []Tensor) func() {
	n := len(out) - 2
	add, norm := o.add().CPU(c, in[:2], out[:n]), o.norm().CPU(c, []Tensor{out[0], in[2]}, out[n:])
	return func() { add(); norm() }
}

func (o RMSNormGrad) AccumulateGPU() (Kernel, bool) { return RMSNormGradTo(o), true }

// RMSNormGradTo adds RMSNormGrad's result for its first four inputs to the fifth, in that one's memory, for
// plans of a GPU: the gradient that arrives by the residual.
type RMSNormGradTo struct {
	Heads   int
	PlusOne bool
}

func (RMSNormGradTo) Name() string { return "rmsnorm_grad" }

func (o RMSNormGradTo) Shape(in []Type) ([]Type, error) { return ontoShape(RMSNormGrad(o), in, 4, 1) }

func (RMSNormGradTo) Overwrites() []Alias { return []Alias{{0, 4}} }

// Scratch holds the gradient before it is added.
func (RMSNormGradTo) Scratch(in []Type, _ int) int64 { return in[0].Bytes() }

func (o RMSNormGradTo) CPU(c *CPU, in, out []Tensor) func() {
	dx := NewTensor(in[0].Type, c.Scratch)
	grad, add := RMSNormGrad(o).CPU(c, in[:4], []Tensor{dx}), Add{}.CPU(c, []Tensor{in[4], dx}, out)
	return func() { grad(); add() }
}

func (RMSNormLowBits) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 4) }

func (AddRMSNorm) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 5) }

func (RMSNormGradTo) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 8) }

// RMSNormRoPE norms heads and rotates them in one kernel, for plans of a GPU.
//
//	x f[M,H*D], w w[D], table f[P,T], positions i32[M] -> y f[M,H*D] = rope(norm(x)), rstd f[M*H]
type RMSNormRoPE struct {
	Norm   RMSNorm
	Rotate RoPE
}

func (RMSNormRoPE) Name() string { return "rmsnorm_rope" }

func (o RMSNormRoPE) Shape(in []Type) ([]Type, error) {
	if len(in) != 4 {
		return nil, fmt.Errorf("takes 4 inputs, got %d", len(in))
	}
	out, err := o.Norm.Shape(in[:2])
	if err != nil {
		return nil, err
	}
	y, err := o.Rotate.Shape([]Type{out[0], in[2], in[3]})
	return append(y, out[1:]...), err
}

func (o RMSNormRoPE) CPU(c *CPU, in, out []Tensor) func() {
	norm, rotate := o.Norm.CPU(c, in[:2], out), o.Rotate.CPU(c, []Tensor{out[0], in[2], in[3]}, out[:1])
	return func() { norm(); rotate() }
}

// RMSNormRoPEGrad is the gradient of RMSNormRoPE for its first input. Rotate is the rotation back.
//
//	x f[M,H*D], w w[D], rstd f[M*H], dy f[M,H*D], table f[P,T], positions i32[M] -> dx f[M,H*D]
type RMSNormRoPEGrad struct {
	Norm   RMSNormGrad
	Rotate RoPE
}

func (RMSNormRoPEGrad) Name() string { return "rmsnorm_rope_grad" }

func (o RMSNormRoPEGrad) Shape(in []Type) ([]Type, error) {
	if len(in) != 6 {
		return nil, fmt.Errorf("takes 6 inputs, got %d", len(in))
	}
	if _, err := o.Rotate.Shape(in[3:]); err != nil {
		return nil, err
	}
	return o.Norm.Shape(in[:4])
}

func (RMSNormRoPEGrad) InPlace() []Alias { return []Alias{{0, 3}} }

func (o RMSNormRoPEGrad) CPU(c *CPU, in, out []Tensor) func() {
	rotate := o.Rotate.CPU(c, in[3:], out)
	grad := o.Norm.CPU(c, []Tensor{in[0], in[1], in[2], out[0]}, out)
	return func() { rotate(); grad() }
}

func (o RMSNormRoPE) Cost(in, out []Type, c Content) Cost {
	rotate := o.Rotate.Cost([]Type{in[0], in[2], in[3]}, in[:1], c)
	return Cost{rotate.Bytes + in[1].Bytes() + out[1].Bytes(), rotate.FLOPs + 4*int64(in[0].Elems())}
}

func (o RMSNormRoPEGrad) Cost(in, out []Type, c Content) Cost {
	rotate := o.Rotate.Cost([]Type{in[3], in[4], in[5]}, out, c)
	return Cost{rotate.Bytes + moved(in[:3]), rotate.FLOPs + 7*int64(in[0].Elems())}
}

func (RMSNormRoPE) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, I32}, []DType{ComputeType, F32}
}

func (RMSNormRoPEGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, ComputeType, F32, I32}, []DType{ComputeType}
}
