package kernel

import "math"

// RowsMode says what SetRows makes of the rows that it changes.
type RowsMode uint8

const (
	// PutRows replaces a row of x by a row of the table.
	PutRows RowsMode = iota
	// AddRows adds a row of the table to a row of x.
	AddRows
	// ClearRows sets a row of x to zero. It is the gradient of PutRows for x, and reads no numbers of the table.
	ClearRows
)

// SetRows changes those rows of x that have a row of a table: embeddings of images stand in place of those of their
// tokens. Row m gets row from[m] of the table; a negative from[m] leaves it. A number beyond the table gives a row of
// NaN. Every row is written once, so the order of the work changes nothing. The table gets no gradient.
//
//	x f[M,C], table w[R,C], from i32[M] -> f[M,C]
type SetRows struct{ Mode RowsMode }

// Name returns "set_rows".
func (SetRows) Name() string { return "set_rows" }

// Shape returns the type of x.
func (SetRows) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]", "w[R,C]", "i32[M]"); err != nil {
		return nil, err
	}
	return in[:1], nil
}

// Grads gives x the gradient of the output, which is zero where a row was replaced.
func (o SetRows) Grads() Backward {
	if o.Mode == AddRows {
		return Backward{Grads: []Ref{Upstream(), {}, {}}}
	}
	return Backward{Calls: []Call{{SetRows{ClearRows}, []Ref{Upstream(), In(1), In(2)}}},
		Grads: []Ref{FromCall(0, 0), {}, {}}}
}

// InPlace allows the output in the memory of x.
func (SetRows) InPlace() []Alias { return []Alias{{0, 0}} }

// CPU binds the float64 or the float32 body.
func (o SetRows) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], setRows[float32], setRows[float64])(c, o, in, out)
}

func setRows[F Float](c *CPU, o SetRows, in, out []Tensor) func() {
	x, from, y := Floats[F](in[0]), in[2].I32(), Floats[F](out[0])
	rows, width, nan := in[1].Shape[0], in[1].Shape[1], F(math.NaN())
	var table []F
	var load func()
	if o.Mode != ClearRows {
		table, load = frozenRow[F](in[1])
	}
	return after(load, c.Range(len(from), rowGrain(width), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			x, y, r := x[m*width:][:width], y[m*width:][:width], int(from[m])
			switch {
			case r < 0:
				copy(y, x)
			case o.Mode == ClearRows:
				clear(y)
			case r >= rows:
				for i := range y {
					y[i] = nan
				}
			case o.Mode == AddRows:
				for i, t := range table[r*width:][:width] {
					y[i] = x[i] + t
				}
			default:
				copy(y, table[r*width:][:width])
			}
		}
	}))
}

// Cost counts x and the result, and a sum for each number where rows are added.
func (o SetRows) Cost(in, out []Type, _ Content) Cost {
	c := Cost{Bytes: in[0].Bytes() + in[2].Bytes() + moved(out)}
	if o.Mode == AddRows {
		c.Bytes, c.FLOPs = c.Bytes+min(in[0].Bytes(), in[1].Bytes()), int64(out[0].Elems())
	}
	return c
}

// Stored keeps all rows in the compute type.
func (SetRows) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{ComputeType}
}
