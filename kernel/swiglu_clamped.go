package kernel

import (
	"fmt"
	"math"
)

// ClampedSwiGLU gates as gpt-oss does: of a row, even columns are the gate and odd ones what it gates, both limited
// (transformers' GptOssExperts; OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025).
//
//	x f[S,2F] -> h f[S,F];  g = min(x[2i], 7),  u = clamp(x[2i+1], -7, 7),  h[i] = (u + 1) * g * sigmoid(1.702 g)
type ClampedSwiGLU struct{}

// The constants of ClampedSwiGLU.
const (
	clampedAlpha = 1.702
	clampedLimit = 7
)

// Cheap: its output costs less to recompute than to keep.
func (ClampedSwiGLU) Cheap() {}

func (ClampedSwiGLU) Name() string { return "swiglu_clamped" }

func (ClampedSwiGLU) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,G]")
	if err != nil {
		return nil, err
	}
	if d.At('G')%2 != 0 {
		return nil, fmt.Errorf("input 0 is %v, want an even number of columns", in[0])
	}
	return []Type{T(in[0].DType, d.At('S'), d.At('G')/2)}, nil
}

func (ClampedSwiGLU) Grads() Backward {
	return Backward{
		Calls: []Call{{ClampedSwiGLUGrad{}, []Ref{In(0), Upstream()}}},
		Grads: []Ref{FromCall(0, 0)},
	}
}

func (ClampedSwiGLU) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], clampedSwiGLU[float32], clampedSwiGLU[float64])(c, in, out)
}

// clampedGate is g, u, and sigmoid(alpha g).
func clampedGate(gate, up float64) (g, u, s float64) {
	g, u = min(gate, clampedLimit), max(min(up, clampedLimit), -clampedLimit)
	return g, u, 1 / (1 + math.Exp(-clampedAlpha*g))
}

func clampedSwiGLU[F Float](c *CPU, in, out []Tensor) func() {
	x, h := Floats[F](in[0]), Floats[F](out[0])
	return c.Range(len(h), 1<<11, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			g, u, s := clampedGate(float64(x[2*i]), float64(x[2*i+1]))
			h[i] = F((u + 1) * g * s)
		}
	})
}

// ClampedSwiGLUGrad is the gradient of ClampedSwiGLU; that of a number at which it is limited is zero.
//
//	x f[S,2F], dh f[S,F] -> dx f[S,2F];  dg = dh (u+1) s (1 + 1.702 g (1-s)),  du = dh g s
type ClampedSwiGLUGrad struct{}

func (ClampedSwiGLUGrad) Name() string { return "swiglu_clamped_grad" }

func (ClampedSwiGLUGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,G]", "f[S,F]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if d.At('G') != 2*d.At('F') {
		return nil, fmt.Errorf("input 0 is %v, input 1 is %v: want two columns for each of the gradient's", in[0], in[1])
	}
	return []Type{in[0]}, nil
}

func (ClampedSwiGLUGrad) InPlace() []Alias { return []Alias{{0, 0}} }

func (ClampedSwiGLUGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], clampedSwiGLUGrad[float32], clampedSwiGLUGrad[float64])(c, in, out)
}

func clampedSwiGLUGrad[F Float](c *CPU, in, out []Tensor) func() {
	x, dh, dx := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0])
	return c.Range(len(dh), 1<<11, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			gate, up, d := float64(x[2*i]), float64(x[2*i+1]), float64(dh[i])
			g, u, s := clampedGate(gate, up)
			var dg, du float64
			if !(gate > clampedLimit) {
				dg = d * (u + 1) * s * (1 + clampedAlpha*g*(1-s))
			}
			if !(math.Abs(up) > clampedLimit) {
				du = d * g * s
			}
			dx[2*i], dx[2*i+1] = F(dg), F(du)
		}
	})
}

func (ClampedSwiGLU) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 12) }

func (ClampedSwiGLUGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[1], 18) }
