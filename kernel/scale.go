package kernel

import (
	"fmt"
	"math"
)

// Scale multiplies by a constant.
//
//	x f[M,C] -> y f[M,C] = By*x
type Scale struct{ By float64 }

func (Scale) Name() string { return "scale" }

func (o Scale) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]"); err != nil {
		return nil, err
	}
	if math.IsNaN(o.By) || math.IsInf(o.By, 0) {
		return nil, fmt.Errorf("attribute By is %v, want a finite number", o.By)
	}
	return []Type{in[0]}, nil
}

func (o Scale) Grads() Backward {
	return Backward{Calls: []Call{{o, []Ref{Upstream()}}}, Grads: []Ref{FromCall(0, 0)}}
}

func (Scale) InPlace() []Alias { return []Alias{{0, 0}} }

func (o Scale) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scale[float32], scale[float64])(c, o, in, out)
}

func scale[F Float](c *CPU, o Scale, in, out []Tensor) func() {
	x, y, by := Floats[F](in[0]), Floats[F](out[0]), F(o.By)
	return c.Range(len(y), 1<<14, func(lo, hi int) {
		x, y := x[lo:hi], y[lo:hi]
		for i := range y {
			y[i] = by * x[i]
		}
	})
}

func (Scale) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (Scale) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}
