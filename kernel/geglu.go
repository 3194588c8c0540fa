package kernel

import (
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// GeGLU gates one half of an MLP's hidden layer by the other through GELU (Shazeer, "GLU Variants Improve Transformer",
// 2020; Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016).
//
//	gate f[M,F], up f[M,F] -> h f[M,F] = gelu(gate)*up
//	gelu(x) = x*(1 + tanh(u))/2 = x*sigmoid(2u),  u = sqrt(2/pi)*(x + 0.044715*x^3)
//	with Erf: gelu(x) = x*Phi(x),  Phi(x) = (1 + erf(x/sqrt(2)))/2
type GeGLU struct {
	Erf bool // the exact form, torch's gelu(approximate="none"), instead of the tanh form, "tanh"
}

// Cheap: its output costs less to recompute than to keep.
func (GeGLU) Cheap() {}

func (GeGLU) Name() string { return "geglu" }

func (GeGLU) Shape(in []Type) ([]Type, error) { return SwiGLU{}.Shape(in) }

func (k GeGLU) Grads() Backward {
	return Backward{
		Calls: []Call{{GeGLUGrad(k), []Ref{In(0), In(1), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), FromCall(0, 1)},
	}
}

func (GeGLU) InPlace() []Alias { return []Alias{{0, 0}} }

func (k GeGLU) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], geglu[float32], geglu[float64])(c, k.Erf, in, out)
}

func geglu[F Float](c *CPU, erf bool, in, out []Tensor) func() {
	gate, up, h, apply := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0]), simd.Best[F]().GeGLU
	if erf {
		apply = gegluErf[F]
	}
	return c.Range(len(h), 1<<11, func(lo, hi int) { apply(h[lo:hi], gate[lo:hi], up[lo:hi]) })
}

// below returns the share of the normal distribution below x, in float64.
func below(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

func gegluErf[F Float](h, gate, up []F) {
	for i, x := range gate {
		h[i] = F(float64(x)*below(float64(x))) * up[i]
	}
}

func gegluErfGrad[F Float](dgate, dup, gate, up, dh []F) {
	for i, g := range gate {
		x, u, d := float64(g), up[i], dh[i]
		share, density := below(x), math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
		dgate[i] = d * u * F(share+x*density)
		dup[i] = d * F(x*share)
	}
}

// GeGLUGrad are the gradients of GeGLU, with s = sigmoid(2u).
//
//	gate f[M,F], up f[M,F], dh f[M,F] -> dgate f[M,F], dup f[M,F] = dh*gelu(gate)
//	dgate = dh*up*s*(1 + gate*(1-s)*2*sqrt(2/pi)*(1 + 3*0.044715*gate^2))
//	with Erf: dgate = dh*up*(Phi(gate) + gate*exp(-gate^2/2)/sqrt(2*pi))
type GeGLUGrad struct{ Erf bool }

func (GeGLUGrad) Name() string { return "geglu_grad" }

func (GeGLUGrad) Shape(in []Type) ([]Type, error) { return SwiGLUGrad{}.Shape(in) }

func (GeGLUGrad) InPlace() []Alias { return []Alias{{0, 0}, {1, 1}} }

func (k GeGLUGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], gegluGrad[float32], gegluGrad[float64])(c, k.Erf, in, out)
}

func gegluGrad[F Float](c *CPU, erf bool, in, out []Tensor) func() {
	gate, up, dh := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2])
	dgate, dup, apply := Floats[F](out[0]), Floats[F](out[1]), simd.Best[F]().GeGLUGrad
	if erf {
		apply = gegluErfGrad[F]
	}
	return c.Range(len(dh), 1<<11, func(lo, hi int) {
		apply(dgate[lo:hi], dup[lo:hi], gate[lo:hi], up[lo:hi], dh[lo:hi])
	})
}

func (o GeGLU) Cost(in, out []Type, _ Content) Cost {
	if o.Erf {
		return pointwise(in, out, out[0], 6)
	}
	return pointwise(in, out, out[0], 11)
}

func (o GeGLUGrad) Cost(in, out []Type, _ Content) Cost {
	if o.Erf {
		return pointwise(in, out, out[0], 14)
	}
	return pointwise(in, out, out[0], 21)
}

func (GeGLU) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

func (GeGLUGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType}, []DType{ComputeType, ComputeType}
}
