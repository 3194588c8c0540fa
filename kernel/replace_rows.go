package kernel

import "fmt"

// ReplaceRows replaces rows of a matrix: row m becomes row at[m] of rows, or stays where at[m] is no row of it.
//
// Scale, where it is not zero, multiplies the rows that are put in, rounded as Embedding does.
//
//	x w[M,C], rows f[K,C], at i32[M] -> y f[M,C]
type ReplaceRows struct{ Scale float64 }

// Name returns "replace_rows".
func (ReplaceRows) Name() string { return "replace_rows" }

// Shape returns the shape of x, in the type of rows.
func (o ReplaceRows) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "w[M,C]", "f[K,C]", "i32[M]"); err != nil {
		return nil, err
	}
	if err := checkScale(o.Scale); err != nil {
		return nil, err
	}
	return []Type{{in[1].DType, in[0].Shape}}, nil
}

// Grads sums the gradients of the places of each row of rows. x has no gradient: it is a frozen table, or rows of one.
func (o ReplaceRows) Grads() Backward {
	return Backward{Calls: []Call{{ReplaceRowsGrad(o), []Ref{In(1), In(2), Upstream()}}},
		Grads: []Ref{{}, FromCall(0, 0), {}}}
}

// CPU binds the float64 or the float32 body.
func (o ReplaceRows) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(out[0], replaceRows[float32], replaceRows[float64])(c, o, in, out)
}

func replaceRows[F Float](c *CPU, o ReplaceRows, in, out []Tensor) func() {
	row, rows, at, y := converter[F](in[0]), Floats[F](in[1]), in[2].I32(), Floats[F](out[0])
	count, width, scale := in[1].Shape[0], in[1].Shape[1], F(1)
	if o.Scale != 0 {
		scale = F(o.Scale)
	}
	return c.Range(len(at), rowGrain(width), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			to, k := y[m*width:][:width], int(at[m])
			if k < 0 || k >= count {
				row(to, m*width)
				continue
			}
			for i, v := range rows[k*width:][:width] {
				to[i] = v * scale
			}
		}
	})
}

// Cost counts x and y once, which are larger than the rows.
func (ReplaceRows) Cost(in, out []Type, _ Content) Cost {
	return Cost{Bytes: moved(in[:1], in[2:], out)}
}

// Stored keeps the matrices in the compute type.
func (ReplaceRows) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{ComputeType}
}

// ReplaceRowsGrad is the gradient of ReplaceRows for rows. The gradients of a row's places are added in the order of
// the places; a row without a place has zero. Of rows the shape alone is used.
//
//	rows f[K,C], at i32[M], dy f[M,C] -> drows f[K,C], drows[k] = Scale * sum of dy over the places of k
type ReplaceRowsGrad struct{ Scale float64 }

// Name returns "replace_rows_grad".
func (ReplaceRowsGrad) Name() string { return "replace_rows_grad" }

// Shape returns the shape of rows.
func (o ReplaceRowsGrad) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[K,C]", "i32[M]", "f[M,C]"); err != nil {
		return nil, err
	}
	if err := checkScale(o.Scale); err != nil {
		return nil, err
	}
	return []Type{{in[2].DType, in[0].Shape}}, nil
}

// CPU binds the float64 or the float32 body.
func (o ReplaceRowsGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[2], replaceRowsGrad[float32], replaceRowsGrad[float64])(c, o, in, out)
}

// replaceRowsGrad divides the columns among the workers, each of which adds in the order of the places.
func replaceRowsGrad[F Float](c *CPU, o ReplaceRowsGrad, in, out []Tensor) func() {
	const columns = 64
	at, dy, drows := in[1].I32(), Floats[F](in[2]), Floats[F](out[0])
	count, width, scale := out[0].Shape[0], out[0].Shape[1], F(1)
	if o.Scale != 0 {
		scale = F(o.Scale)
	}
	return c.Range(width, columns, func(lo, hi int) {
		for k := range count {
			clear(drows[k*width:][lo:hi])
		}
		for m, k := range at {
			if k < 0 || int(k) >= count {
				continue
			}
			to := drows[int(k)*width:][lo:hi]
			for i, g := range dy[m*width:][lo:hi] {
				to[i] += F(scale * g)
			}
		}
	})
}

// Cost counts the places, and the gradients that are read at most.
func (ReplaceRowsGrad) Cost(in, out []Type, _ Content) Cost {
	return Cost{Bytes: moved(in[1:2], out) + in[2].Bytes(), FLOPs: int64(in[2].Elems())}
}

// Stored takes an activation's gradient in the compute type, a weight's in fp32, and keeps the sums in fp32.
func (ReplaceRowsGrad) Stored(in []DType) (want, out []DType) {
	return []DType{ComputeType, I32, term(in[2])}, []DType{F32}
}

// Lookup takes an element of a table of whole numbers for every id; -1 where an id is outside the table.
//
//	ids i32[M], table i32[V] -> y i32[M] = table[ids]
type Lookup struct{}

// Name returns "lookup".
func (Lookup) Name() string { return "lookup" }

// Shape returns the shape of ids.
func (Lookup) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "i32[M]", "i32[V]"); err != nil {
		return nil, err
	}
	return in[:1], nil
}

// CPU binds the body.
func (Lookup) CPU(_ *CPU, in, out []Tensor) func() {
	ids, table, y := in[0].I32(), in[1].I32(), out[0].I32()
	return func() {
		for i, id := range ids {
			y[i] = -1
			if id >= 0 && int(id) < len(table) {
				y[i] = table[id]
			}
		}
	}
}

// Cost counts the ids, what is found, and the places in the table, or the whole table where it is smaller.
func (Lookup) Cost(in, out []Type, _ Content) Cost {
	return Cost{Bytes: in[0].Bytes() + min(in[0].Bytes(), in[1].Bytes()) + moved(out)}
}

// Stored returns the types: all are whole numbers.
func (Lookup) Stored([]DType) (want, out []DType) { return []DType{I32, I32}, []DType{I32} }

// checkScale reports an attribute Scale that is no finite number.
func checkScale(x float64) error {
	if !finite(x) {
		return fmt.Errorf("attribute Scale is %v, want a finite number", x)
	}
	return nil
}
