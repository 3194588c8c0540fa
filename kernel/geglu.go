package kernel

import "github.com/tierlora/tierlora/kernel/simd"

// GeGLU gates one half of an MLP's hidden layer by the other through GELU in its tanh form (Shazeer, "GLU Variants Improve
// Transformer", 2020; Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016): torch's gelu(approximate="tanh").
//
//	gate f[M,F], up f[M,F] -> h f[M,F] = gelu(gate)*up
//	gelu(x) = x*(1 + tanh(u))/2 = x*sigmoid(2u),  u = sqrt(2/pi)*(x + 0.044715*x^3)
type GeGLU struct{}

// Cheap: its output costs less to recompute than to keep.
func (GeGLU) Cheap() {}

func (GeGLU) Name() string { return "geglu" }

func (GeGLU) Shape(in []Type) ([]Type, error) { return SwiGLU{}.Shape(in) }

func (GeGLU) Grads() Backward {
	return Backward{
		Calls: []Call{{GeGLUGrad{}, []Ref{In(0), In(1), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), FromCall(0, 1)},
	}
}

func (GeGLU) InPlace() []Alias { return []Alias{{0, 0}} }

func (GeGLU) CPU(c *CPU, in, out []Tensor) func() {
	if in[0].DType == F64 {
		return geglu[float64](c, in, out)
	}
	return geglu[float32](c, in, out)
}

func geglu[F Float](c *CPU, in, out []Tensor) func() {
	gate, up, h, l := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0]), simd.Best[F]()
	return c.Range(len(h), 1<<11, func(lo, hi int) { l.GeGLU(h[lo:hi], gate[lo:hi], up[lo:hi]) })
}

// GeGLUGrad are the gradients of GeGLU, with s = sigmoid(2u).
//
//	gate f[M,F], up f[M,F], dh f[M,F] -> dgate f[M,F], dup f[M,F] = dh*gate*s
//	dgate = dh*up*s*(1 + gate*(1-s)*2*sqrt(2/pi)*(1 + 3*0.044715*gate^2))
type GeGLUGrad struct{}

func (GeGLUGrad) Name() string { return "geglu_grad" }

func (GeGLUGrad) Shape(in []Type) ([]Type, error) { return SwiGLUGrad{}.Shape(in) }

func (GeGLUGrad) InPlace() []Alias { return []Alias{{0, 0}, {1, 1}} }

func (GeGLUGrad) CPU(c *CPU, in, out []Tensor) func() {
	if in[0].DType == F64 {
		return gegluGrad[float64](c, in, out)
	}
	return gegluGrad[float32](c, in, out)
}

func gegluGrad[F Float](c *CPU, in, out []Tensor) func() {
	gate, up, dh := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2])
	dgate, dup, l := Floats[F](out[0]), Floats[F](out[1]), simd.Best[F]()
	return c.Range(len(dh), 1<<11, func(lo, hi int) {
		l.GeGLUGrad(dgate[lo:hi], dup[lo:hi], gate[lo:hi], up[lo:hi], dh[lo:hi])
	})
}
