package kernel

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

func (RMSNormWeightGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 3) }
