package kernel

import "fmt"

// HeadColumns copies the same columns of every head, such as the queries of a projection that has a gate beside each head's query.
//
//	x f[M,H*Of] -> y f[M,H*Width], of each head's Of columns From..From+Width
type HeadColumns struct{ Heads, Of, From, Width int }

func (HeadColumns) Name() string { return "head_columns" }

func (o HeadColumns) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]")
	if err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if d.At('C') != o.Heads*o.Of {
		return nil, fmt.Errorf("input 0 is %v, want %d columns, %d for each head", in[0], o.Heads*o.Of, o.Of)
	}
	return []Type{T(in[0].DType, d.At('M'), o.Heads*o.Width)}, nil
}

func (o HeadColumns) check() error {
	if o.Heads < 1 || o.From < 0 || o.Width < 1 || o.From+o.Width > o.Of {
		return fmt.Errorf("columns %d to %d of %d in each of %d heads", o.From, o.From+o.Width-1, o.Of, o.Heads)
	}
	return nil
}

func (o HeadColumns) Grads() Backward {
	return Backward{Calls: []Call{{HeadColumnsGrad(o), []Ref{Upstream()}}}, Grads: []Ref{FromCall(0, 0)}}
}

func (o HeadColumns) CPU(c *CPU, in, out []Tensor) func() {
	size := in[0].DType.Size()
	x, y, head, from, width := in[0].Bytes(), out[0].Bytes(), o.Of*size, o.From*size, o.Width*size
	return c.Range(in[0].Shape[0]*o.Heads, rowGrain(o.Width), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			copy(y[i*width:][:width], x[i*head+from:])
		}
	})
}

func (HeadColumns) Cost(_, out []Type, _ Content) Cost { return Cost{Bytes: 2 * moved(out)} }

// HeadColumnsGrad is the gradient of HeadColumns: dy where the columns were, zeros beside them.
//
//	dy f[M,H*Width] -> dx f[M,H*Of]
type HeadColumnsGrad HeadColumns

func (HeadColumnsGrad) Name() string { return "head_columns_grad" }

func (o HeadColumnsGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]")
	if err != nil {
		return nil, err
	}
	if err := HeadColumns(o).check(); err != nil {
		return nil, err
	}
	if d.At('W') != o.Heads*o.Width {
		return nil, fmt.Errorf("input 0 is %v, want %d columns, %d for each head", in[0], o.Heads*o.Width, o.Width)
	}
	return []Type{T(in[0].DType, d.At('M'), o.Heads*o.Of)}, nil
}

func (o HeadColumnsGrad) CPU(c *CPU, in, out []Tensor) func() {
	size := in[0].DType.Size()
	dy, dx, head, from, width := in[0].Bytes(), out[0].Bytes(), o.Of*size, o.From*size, o.Width*size
	return c.Range(in[0].Shape[0]*o.Heads, rowGrain(o.Of), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			clear(dx[i*head:][:head])
			copy(dx[i*head+from:][:width], dy[i*width:])
		}
	})
}

func (HeadColumnsGrad) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

func (HeadColumns) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}

func (HeadColumnsGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}
