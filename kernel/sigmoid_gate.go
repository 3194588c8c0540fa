package kernel

import "math"

// SigmoidGate multiplies every row by a gate of its own, as a shared expert's output is (Qwen1.5-MoE, 2024).
//
//	x f[M,C], gate f[M,1] -> y f[M,C] = x*sigmoid(gate)
type SigmoidGate struct{}

// Cheap: its output costs less to recompute than to keep.
func (SigmoidGate) Cheap() {}

func (SigmoidGate) Name() string { return "sigmoid_gate" }

func (SigmoidGate) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]", "f[M,1]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (SigmoidGate) Grads() Backward {
	return Backward{
		Calls: []Call{{SigmoidGateGrad{}, []Ref{In(0), In(1), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), FromCall(0, 1)},
	}
}

func (SigmoidGate) InPlace() []Alias { return []Alias{{0, 0}} }

func (SigmoidGate) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], sigmoidGate[float32], sigmoidGate[float64])(c, in, out)
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func sigmoidGate[F Float](c *CPU, in, out []Tensor) func() {
	x, gate, y, width := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0]), in[0].Shape[1]
	return c.Range(len(gate), rowGrain(width), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			s, x, y := F(sigmoid(float64(gate[r]))), x[r*width:][:width], y[r*width:][:width]
			for i, v := range x {
				y[i] = v * s
			}
		}
	})
}

// SigmoidGateGrad are the gradients of SigmoidGate, with s = sigmoid(gate).
//
//	x f[M,C], gate f[M,1], dy f[M,C] -> dx f[M,C] = dy*s, dgate f[M,1] = s*(1-s)*sum(x*dy)
type SigmoidGateGrad struct{}

func (SigmoidGateGrad) Name() string { return "sigmoid_gate_grad" }

func (SigmoidGateGrad) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]", "f[M,1]", "f[M,C]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2); err != nil {
		return nil, err
	}
	return []Type{in[0], in[1]}, nil
}

func (SigmoidGateGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], sigmoidGateGrad[float32], sigmoidGateGrad[float64])(c, in, out)
}

func sigmoidGateGrad[F Float](c *CPU, in, out []Tensor) func() {
	x, gate, dy, width := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2]), in[0].Shape[1]
	dx, dgate := Floats[F](out[0]), Floats[F](out[1])
	return c.Range(len(gate), rowGrain(width), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			s, sum := sigmoid(float64(gate[r])), 0.0
			x, dy, dx := x[r*width:][:width], dy[r*width:][:width], dx[r*width:][:width]
			for i, v := range x {
				sum += float64(float64(v) * float64(dy[i]))
				dx[i] = dy[i] * F(s)
			}
			dgate[r] = F(s * sigmoid(-float64(gate[r])) * sum)
		}
	})
}

func (SigmoidGate) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (SigmoidGateGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 3) }

func (SigmoidGate) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

func (SigmoidGateGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType}, []DType{ComputeType, ComputeType}
}
