package kernel

import "fmt"

// ScaleBy multiplies by a frozen number of the model, as Gemma 4 does with what a layer gives. The number has no gradient.
//
//	x f[M,C], s f[1] -> y f[M,C] = s*x
type ScaleBy struct{}

func (ScaleBy) Name() string { return "scale_by" }

func (ScaleBy) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[S]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if d.At('S') != 1 {
		return nil, fmt.Errorf("input 1 is %v, want one number", in[1])
	}
	return []Type{in[0]}, nil
}

func (o ScaleBy) Grads() Backward {
	return Backward{Calls: []Call{{o, []Ref{Upstream(), In(1)}}}, Grads: []Ref{FromCall(0, 0), {}}}
}

func (ScaleBy) InPlace() []Alias { return []Alias{{0, 0}} }

func (ScaleBy) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scaleBy[float32], scaleBy[float64])(c, in, out)
}

func scaleBy[F Float](c *CPU, in, out []Tensor) func() {
	x, s, y := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0])
	return c.Range(len(y), 1<<14, func(lo, hi int) {
		by, x, y := s[0], x[lo:hi], y[lo:hi]
		for i := range y {
			y[i] = by * x[i]
		}
	})
}

func (ScaleBy) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

// Stored: one number costs nothing to keep as it is.
func (ScaleBy) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32}, []DType{ComputeType}
}
