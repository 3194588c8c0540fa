package kernel

// RowFactors multiplies every row of x by the row of a table that which names for it; where the factor is zero the result is,
// whatever x is there. It chooses among adapters that lie side by side: each row of a batch keeps the columns of its own, times
// that adapter's scale. It has no gradient: in training there is one adapter.
//
//	x f[M,C], which i32[M], table w[A,C] -> y f[M,C] = x[m,c] * table[which[m],c], 0 where which[m] is no row of the table
type RowFactors struct{}

func (RowFactors) Name() string { return "row_factors" }

func (RowFactors) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]", "i32[M]", "w[A,C]"); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (RowFactors) InPlace() []Alias { return []Alias{{0, 0}} }

func (RowFactors) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], rowFactors[float32], rowFactors[float64])(c, in, out)
}

func rowFactors[F Float](c *CPU, in, out []Tensor) func() {
	x, which, y := Floats[F](in[0]), in[1].I32(), Floats[F](out[0])
	table, load := frozenRow[F](in[2])
	tables, width := in[2].Shape[0], in[2].Shape[1]
	return after(load, c.Range(in[0].Shape[0], rowGrain(width), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			row, to := x[m*width:][:width], y[m*width:][:width]
			a := int(which[m])
			if a < 0 || a >= tables {
				clear(to)
				continue
			}
			for i, by := range table[a*width:][:width] {
				v := by * row[i]
				if by == 0 {
					v = 0
				}
				to[i] = v
			}
		}
	}))
}

func (RowFactors) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (RowFactors) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, F32}, []DType{ComputeType}
}
