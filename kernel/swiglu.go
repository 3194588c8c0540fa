package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

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

// clampedGate returns g, u, and sigmoid(alpha g).
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
		return nil, fmt.Errorf("input 0 is %v, input 1 is %v: want two columns for each of the gradient's", in[0],
			in[1])
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

// SwiGLUGateUp is SwiGLU of the halves of a fused projection's rows: the gate, then what it gates.
//
//	x f[M,2F] -> h f[M,F] = gate*sigmoid(gate)*up,  gate = x[:, :F],  up = x[:, F:]
type SwiGLUGateUp struct{}

// Cheap: its output costs less to recompute than to keep.
func (SwiGLUGateUp) Cheap() {}

func (SwiGLUGateUp) Name() string { return "swiglu_gate_up" }

func (SwiGLUGateUp) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,F]")
	if err != nil {
		return nil, err
	}
	if d.At('F')%2 != 0 {
		return nil, fmt.Errorf("input 0 is %v: its rows have no halves", in[0])
	}
	return []Type{T(in[0].DType, d.At('M'), d.At('F')/2)}, nil
}

func (SwiGLUGateUp) Grads() Backward {
	return Backward{
		Calls: []Call{{SwiGLUGateUpGrad{}, []Ref{In(0), Upstream()}}},
		Grads: []Ref{FromCall(0, 0)},
	}
}

func (SwiGLUGateUp) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], swigluGateUp[float32], swigluGateUp[float64])(c, in, out)
}

func swigluGateUp[F Float](c *CPU, in, out []Tensor) func() {
	x, h, l := Floats[F](in[0]), Floats[F](out[0]), simd.Best[F]()
	return c.Range(out[0].Shape[0], halfGrain(out[0].Shape[1]), halves(out[0].Shape[1], func(row, gate, up, n int) {
		l.SwiGLU(h[row:][:n], x[gate:][:n], x[up:][:n])
	}))
}

// halfGrain returns how many rows with halves of F elements are a piece of work, as SwiGLU cuts it.
func halfGrain(F int) int { return max(1, 1<<13/max(F, 1)) }

// halves calls f for rows lo to hi of [M,2F] with where a row of [M,F] and the row's halves begin, and with F.
func halves(F int, f func(row, gate, up, n int)) func(lo, hi int) {
	return func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f(i*F, 2*i*F, 2*i*F+F, F)
		}
	}
}

// SwiGLUGateUpGrad is the gradient of SwiGLUGateUp: SwiGLUGrad's, side by side as the halves are.
//
//	x f[M,2F], dh f[M,F] -> dx f[M,2F]
type SwiGLUGateUpGrad struct{}

func (SwiGLUGateUpGrad) Name() string { return "swiglu_gate_up_grad" }

func (SwiGLUGateUpGrad) Shape(in []Type) ([]Type, error) {
	if len(in) != 2 {
		return nil, fmt.Errorf("takes 2 inputs, got %d", len(in))
	}
	h, err := SwiGLUGateUp{}.Shape(in[:1])
	if err != nil {
		return nil, err
	}
	if !in[1].Equal(h[0]) {
		return nil, fmt.Errorf("input 1 is %v, want %v", in[1], h[0])
	}
	return []Type{in[0]}, nil
}

func (SwiGLUGateUpGrad) InPlace() []Alias { return []Alias{{0, 0}} }

func (SwiGLUGateUpGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], swigluGateUpGrad[float32], swigluGateUpGrad[float64])(c, in, out)
}

func swigluGateUpGrad[F Float](c *CPU, in, out []Tensor) func() {
	x, dh, dx, l := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0]), simd.Best[F]()
	return c.Range(in[1].Shape[0], halfGrain(in[1].Shape[1]), halves(in[1].Shape[1], func(row, gate, up, n int) {
		l.SwiGLUGrad(dx[gate:][:n], dx[up:][:n], x[gate:][:n], x[up:][:n], dh[row:][:n])
	}))
}

func (SwiGLUGateUp) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 6) }

func (SwiGLUGateUpGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[1], 12) }

func (SwiGLUGateUp) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}

func (SwiGLUGateUpGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

func (ClampedSwiGLU) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}

func (ClampedSwiGLUGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}
