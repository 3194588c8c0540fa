package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/simd"
)

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

// halfGrain is how many rows with halves of F elements are a piece of work, as SwiGLU cuts it.
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
