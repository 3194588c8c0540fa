package kernel

import (
	"fmt"
	"math"
)

// DoRANorm returns one over the norm of every row of W + s B A, without building that matrix: the weight W [N,C] of a
// linear layer with its low-rank update, A [R,C] and B [N,R] (Liu et al., "DoRA", 2024). W is frozen, so the squares of
// its rows are summed once; what A and B add to them is
//
//	|W + s B A|² = |W|² + 2 s <B, W Aᵀ> + s² <B, B (A Aᵀ)>, row by row
//
//	squares f[N], wa f[R,N] = A Wᵀ, gram f[R,R] = A Aᵀ, b f[N,R] -> inv f[N]
//
// inv is zero for a row that is zero. The norm is held constant in the backward pass, so no input has a gradient.
type DoRANorm struct {
	Scale float64 // Scale is s, the factor of the update.
}

// Name returns dora_norm.
func (DoRANorm) Name() string { return "dora_norm" }

// Shape checks the inputs and returns one number for each row of the weight.
func (o DoRANorm) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[N]", "f[R,N]", "f[R,R]", "f[N,R]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3); err != nil {
		return nil, err
	}
	if math.IsNaN(o.Scale) || math.IsInf(o.Scale, 0) {
		return nil, fmt.Errorf("attribute Scale is %v, want a finite number", o.Scale)
	}
	return []Type{T(in[0].DType, d.At('N'))}, nil
}

// HeldConstant says that no gradient passes, as in the method's paper and in PEFT.
func (DoRANorm) HeldConstant() {}

// CPU sums in float64.
func (o DoRANorm) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], doraNorm[float32], doraNorm[float64])(c, o, in, out)
}

func doraNorm[F Float](c *CPU, o DoRANorm, in, out []Tensor) func() {
	squares, wa, gram, b := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2]), Floats[F](in[3])
	inv, rows, rank := Floats[F](out[0]), in[3].Shape[0], in[3].Shape[1]
	return c.Range(rows, rowGrain(rank*rank), func(lo, hi int) {
		for n := lo; n < hi; n++ {
			b, sum := b[n*rank:][:rank], float64(squares[n])
			for r, x := range b {
				product := 0.0
				for k, g := range gram[r*rank:][:rank] {
					product += float64(float64(g) * float64(b[k]))
				}
				sum += float64(o.Scale * float64(x) * (2*float64(wa[r*rows+n]) + float64(o.Scale*product)))
			}
			inv[n] = 0
			if sum > 0 {
				inv[n] = F(1 / math.Sqrt(sum))
			}
		}
	})
}

// Cost counts the quadratic form of every row.
func (DoRANorm) Cost(in, out []Type, _ Content) Cost {
	rows, rank := int64(in[3].Shape[0]), int64(in[3].Shape[1])
	return Cost{FLOPs: 2 * rows * rank * (rank + 2), Bytes: moved(in, out)}
}

// Stored keeps everything in fp32.
func (DoRANorm) Stored([]DType) (want, out []DType) {
	return []DType{F32, F32, F32, F32}, []DType{F32}
}

// DoRAScale gives the rows of a weight the trained magnitude m in place of their norm: it scales the columns of what the
// weight makes of x.
//
//	u f[M,N], m f[N], inv f[N] -> y f[M,N] = u*m*inv
type DoRAScale struct{}

// Cheap says that the output costs less to recompute than to keep.
func (DoRAScale) Cheap() {}

// Name returns dora_scale.
func (DoRAScale) Name() string { return "dora_scale" }

// Shape checks the inputs and returns the type of u.
func (DoRAScale) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,N]", "f[N]", "f[N]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

// Grads has gradients of u and m; inv is held constant.
func (DoRAScale) Grads() Backward {
	return Backward{
		Calls: []Call{{DoRAScaleGrad{}, []Ref{In(0), In(1), In(2), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), FromCall(0, 1), {}},
	}
}

// InPlace lets y take the memory of u.
func (DoRAScale) InPlace() []Alias { return []Alias{{0, 0}} }

// CPU scales row by row.
func (DoRAScale) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], doraScale[float32], doraScale[float64])(c, in, out)
}

func doraScale[F Float](c *CPU, in, out []Tensor) func() {
	u, m, inv, y := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2]), Floats[F](out[0])
	width := len(m)
	return c.Range(in[0].Shape[0], rowGrain(width), func(lo, hi int) {
		for row := lo; row < hi; row++ {
			u, y := u[row*width:][:width], y[row*width:][:width]
			for n, x := range u {
				y[n] = x * (m[n] * inv[n])
			}
		}
	})
}

// Cost counts a pass over the activations.
func (DoRAScale) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

// Stored keeps activations in the compute type, magnitudes and norms in fp32.
func (DoRAScale) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, F32}, []DType{ComputeType}
}

// DoRAScaleGrad has the gradients of DoRAScale.
//
//	u f[M,N], m f[N], inv f[N], dy f[M,N] -> du f[M,N] = dy*m*inv, dm f[N] = inv * sum over rows of dy*u
type DoRAScaleGrad struct{}

// Name returns dora_scale_grad.
func (DoRAScaleGrad) Name() string { return "dora_scale_grad" }

// Shape checks the inputs and returns the types of u and m.
func (DoRAScaleGrad) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,N]", "f[N]", "f[N]", "f[M,N]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3); err != nil {
		return nil, err
	}
	return []Type{in[0], in[1]}, nil
}

// InPlace lets du take the memory of dy.
func (DoRAScaleGrad) InPlace() []Alias { return []Alias{{0, 3}} }

// CPU sums columns in float64, each in the order of the rows.
func (DoRAScaleGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], doraScaleGrad[float32], doraScaleGrad[float64])(c, in, out)
}

// doraScaleGrad takes columns of a cache line's width.
func doraScaleGrad[F Float](c *CPU, in, out []Tensor) func() {
	const columns = 16
	u, m, inv, dy := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2]), Floats[F](in[3])
	du, dm, rows, width := Floats[F](out[0]), Floats[F](out[1]), in[0].Shape[0], len(Floats[F](in[1]))
	return c.Range(width, columns, func(lo, hi int) {
		for ; lo < hi; lo += columns { // one piece may be the whole width
			var sums [columns]float64
			var by [columns]F
			n := min(columns, hi-lo)
			for j := range n {
				by[j] = m[lo+j] * inv[lo+j]
			}
			for row := range rows {
				u, dy, du := u[row*width+lo:][:n], dy[row*width+lo:][:n], du[row*width+lo:][:n]
				for j, d := range dy {
					sums[j] += float64(float64(d) * float64(u[j]))
					du[j] = d * by[j]
				}
			}
			for j := range n {
				dm[lo+j] = F(sums[j] * float64(inv[lo+j]))
			}
		}
	})
}

// Cost counts a pass over the activations.
func (DoRAScaleGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 3) }

// Stored keeps activations in the compute type, magnitudes, norms and the magnitudes' gradient in fp32.
func (DoRAScaleGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, F32, ComputeType}, []DType{ComputeType, F32}
}

// doraSlice is how many rows one block of a GPU sums; the sums of slices are added in their order.
const doraSlice = 256

// ScratchGPU returns the bytes of the sums of slices of rows.
func (DoRAScaleGrad) ScratchGPU(in, _ []Type, _ int) int64 {
	M, N := in[0].Shape[0], in[0].Shape[1]
	return T(F32, (M+doraSlice-1)/doraSlice, N).Bytes()
}
