package kernel

import "github.com/tierlora/tierlora/kernel/simd"

// SwiGLU gates one half of an MLP's hidden layer by the other (Shazeer, "GLU Variants Improve
// Transformer", 2020).
//
//	gate f[M,F], up f[M,F] -> h f[M,F] = gate*sigmoid(gate)*up
type SwiGLU struct{}

// Cheap: its output costs less to recompute than to keep.
func (SwiGLU) Cheap() {}

func (SwiGLU) Name() string { return "swiglu" }

func (SwiGLU) Shape(in []Type) ([]Type, error) {
	t, err := sameFloats(in, 2)
	if err != nil {
		return nil, err
	}
	return []Type{t}, nil
}

func (SwiGLU) Grads() Backward {
	return Backward{
		Calls: []Call{{SwiGLUGrad{}, []Ref{In(0), In(1), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), FromCall(0, 1)},
	}
}

func (SwiGLU) InPlace() []Alias { return []Alias{{0, 0}} }

func (SwiGLU) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], swiglu[float32], swiglu[float64])(c, in, out)
}

func swiglu[F Float](c *CPU, in, out []Tensor) func() {
	gate, up, h, l := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0]), simd.Best[F]()
	return c.Range(len(h), 1<<13, func(lo, hi int) { l.SwiGLU(h[lo:hi], gate[lo:hi], up[lo:hi]) })
}

// SwiGLUGrad are the gradients of SwiGLU, with s = sigmoid(gate).
//
//	gate f[M,F], up f[M,F], dh f[M,F] -> dgate f[M,F] = dh*up*s*(1 + gate*(1-s)), dup f[M,F] = dh*gate*s
type SwiGLUGrad struct{}

func (SwiGLUGrad) Name() string { return "swiglu_grad" }

func (SwiGLUGrad) Shape(in []Type) ([]Type, error) {
	t, err := sameFloats(in, 3)
	if err != nil {
		return nil, err
	}
	return []Type{t, t}, nil
}

func (SwiGLUGrad) InPlace() []Alias { return []Alias{{0, 0}, {1, 1}} }

func (SwiGLUGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], swigluGrad[float32], swigluGrad[float64])(c, in, out)
}

func swigluGrad[F Float](c *CPU, in, out []Tensor) func() {
	gate, up, dh := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2])
	dgate, dup, l := Floats[F](out[0]), Floats[F](out[1]), simd.Best[F]()
	return c.Range(len(dh), 1<<13, func(lo, hi int) {
		l.SwiGLUGrad(dgate[lo:hi], dup[lo:hi], gate[lo:hi], up[lo:hi], dh[lo:hi])
	})
}

func (SwiGLU) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 6) }

func (SwiGLUGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 12) }

func (SwiGLU) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

func (SwiGLUGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType}, []DType{ComputeType, ComputeType}
}
