package kernel

import "fmt"

// Reshape gives a matrix another number of rows. The numbers keep their order, so where a plan may reuse x's memory
// nothing is moved.
//
//	x f[From,C] -> y f[To,From*C/To], row by row the same numbers
type Reshape struct{ From, To int }

func (Reshape) Name() string { return "reshape" }

func (o Reshape) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]")
	if err != nil {
		return nil, err
	}
	if o.To < 1 || d.At('M') != o.From || in[0].Elems()%o.To != 0 {
		return nil, fmt.Errorf("input 0 is %v: it does not make %d equal rows of %d", in[0], o.To, o.From)
	}
	return []Type{T(in[0].DType, o.To, in[0].Elems()/o.To)}, nil
}

func (o Reshape) Grads() Backward {
	return Backward{Calls: []Call{{Reshape{o.To, o.From}, []Ref{Upstream()}}}, Grads: []Ref{FromCall(0, 0)}}
}

func (Reshape) InPlace() []Alias { return []Alias{{0, 0}} }

func (o Reshape) CPU(c *CPU, in, out []Tensor) func() {
	x, y := in[0].Bytes(), out[0].Bytes()
	if &x[0] == &y[0] {
		return func() {}
	}
	return c.Range(len(y), 1<<16, func(lo, hi int) { copy(y[lo:hi], x[lo:hi]) })
}

func (Reshape) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

// Stored takes sums of fp32, such as the gradient of a weight, and rounds them.
func (Reshape) Stored(in []DType) (want, out []DType) {
	return []DType{term(in[0])}, []DType{ComputeType}
}
