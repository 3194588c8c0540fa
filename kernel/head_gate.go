package kernel

import "fmt"

// HeadGate multiplies what every head gives by gates that lie beside its queries, as the attention of Qwen3-Next and Qwen3.5 has it.
//
//	x f[M,H*D], both f[M,H*2D] -> y f[M,H*D] = x*sigmoid(gate), each head's gate the second half of its columns in both
type HeadGate struct{ Heads int }

// Cheap: its output costs less to recompute than to keep.
func (HeadGate) Cheap() {}

func (HeadGate) Name() string { return "head_gate" }

func (o HeadGate) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[M,B]")
	if err != nil {
		return nil, err
	}
	return []Type{in[0]}, o.check(in, d, 0, 1)
}

func (o HeadGate) check(in []Type, d Dims, floats ...int) error {
	if err := sameElements(in, floats...); err != nil {
		return err
	}
	if o.Heads < 1 || d.At('C')%o.Heads != 0 || d.At('B') != 2*d.At('C') {
		return fmt.Errorf("input 0 is %v and input 1 is %v, want %d heads, of which input 1 has twice the columns", in[0], in[1], o.Heads)
	}
	return nil
}

func (o HeadGate) Grads() Backward {
	return Backward{
		Calls: []Call{{HeadGateGrad(o), []Ref{In(0), In(1), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), FromCall(0, 1)},
	}
}

func (HeadGate) InPlace() []Alias { return []Alias{{0, 0}} }

func (o HeadGate) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], headGate[float32], headGate[float64])(c, o, in, out)
}

func headGate[F Float](c *CPU, o HeadGate, in, out []Tensor) func() {
	x, both, y, head := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0]), in[0].Shape[1]/o.Heads
	return c.Range(in[0].Shape[0]*o.Heads, rowGrain(head), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			gate, x, y := both[(2*i+1)*head:][:head], x[i*head:][:head], y[i*head:][:head]
			for j, v := range x {
				y[j] = v * F(sigmoid(float64(gate[j])))
			}
		}
	})
}

// HeadGateGrad are the gradients of HeadGate, with s = sigmoid(gate).
//
//	x f[M,H*D], both f[M,H*2D], dy f[M,H*D] -> dx f[M,H*D] = dy*s, dboth f[M,H*2D] = x*dy*s*(1-s) in the gates, zeros in the rest
type HeadGateGrad HeadGate

func (HeadGateGrad) Name() string { return "head_gate_grad" }

func (o HeadGateGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[M,B]", "f[M,C]")
	if err != nil {
		return nil, err
	}
	return []Type{in[0], in[1]}, HeadGate(o).check(in, d, 0, 1, 2)
}

func (o HeadGateGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], headGateGrad[float32], headGateGrad[float64])(c, o, in, out)
}

func headGateGrad[F Float](c *CPU, o HeadGateGrad, in, out []Tensor) func() {
	x, both, dy, head := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2]), in[0].Shape[1]/o.Heads
	dx, dboth := Floats[F](out[0]), Floats[F](out[1])
	return c.Range(in[0].Shape[0]*o.Heads, rowGrain(head), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			gate, x, dy := both[(2*i+1)*head:][:head], x[i*head:][:head], dy[i*head:][:head]
			dx, rest := dx[i*head:][:head], dboth[2*i*head:][:2*head]
			clear(rest[:head])
			for j, v := range x {
				s, d := sigmoid(float64(gate[j])), float64(dy[j])
				rest[head+j] = F(float64(v) * d * s * sigmoid(-float64(gate[j])))
				dx[j] = F(d * s)
			}
		}
	})
}

func (HeadGate) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 3) }

func (HeadGateGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 6) }

func (HeadGate) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

func (HeadGateGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType}, []DType{ComputeType, ComputeType}
}
