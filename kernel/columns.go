package kernel

import "fmt"

// Columns copies neighbouring columns, such as the keys of a fused projection for a cache. It has no gradient: in
// training the kernels that read parts of a matrix take it whole (AttentionQKV, SwiGLUGateUp).
//
//	x f[M,C] -> y f[M,Width] = x[:, From:From+Width]
type Columns struct{ From, Width int }

func (Columns) Name() string { return "columns" }

func (o Columns) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]")
	if err != nil {
		return nil, err
	}
	if o.From < 0 || o.Width < 1 || o.From+o.Width > d.At('C') {
		return nil, fmt.Errorf("input 0 is %v: it has no columns %d to %d", in[0], o.From, o.From+o.Width-1)
	}
	return []Type{T(in[0].DType, d.At('M'), o.Width)}, nil
}

func (o Columns) CPU(c *CPU, in, out []Tensor) func() {
	size := in[0].DType.Size()
	x, y, row, from, width := in[0].Bytes(), out[0].Bytes(), in[0].Shape[1]*size, o.From*size, o.Width*size
	return c.Range(in[0].Shape[0], rowGrain(o.Width), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			copy(y[i*width:][:width], x[i*row+from:])
		}
	})
}

func (Columns) Cost(_, out []Type, _ Content) Cost { return Cost{Bytes: 2 * moved(out)} }

func (Columns) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}
