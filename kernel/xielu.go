package kernel

import "math"

// XIELU is the activation of Apertus' MLPs, which have no gate (Huang and Schlag, "Deriving Activation Functions Using
// Integration", 2024). p and n are learnt numbers as a checkpoint stores them.
//
//	x f[M,F], p f[1], n f[1], beta f[1], eps f[1] -> y f[M,F]
//	x > 0: y = softplus(p)*x^2 + beta*x
//	else:  y = (beta + softplus(n))*(expm1(min(x, eps)) - x) + beta*x
//
// p, n, beta and eps get no gradient.
type XIELU struct{}

// Cheap: its output costs less to recompute than to keep.
func (XIELU) Cheap() {}

// Name returns "xielu".
func (XIELU) Name() string { return "xielu" }

// Shape returns the type of x.
func (XIELU) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,F]", "f[1]", "f[1]", "f[1]", "f[1]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3, 4); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

// Grads returns the gradient of x alone.
func (XIELU) Grads() Backward {
	return Backward{
		Calls: []Call{{XIELUGrad{}, []Ref{In(0), In(1), In(2), In(3), In(4), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), {}, {}, {}, {}},
	}
}

// InPlace lets y replace x.
func (XIELU) InPlace() []Alias { return []Alias{{0, 0}} }

// CPU shares values among workers.
func (XIELU) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], xielu[float32], xielu[float64])(c, in, out)
}

// xieluNumbers returns the factors of both sides, beta and eps.
func xieluNumbers[F Float](in []Tensor) (above, below, beta, eps float64) {
	beta = float64(Floats[F](in[3])[0])
	return softplus(float64(Floats[F](in[1])[0])), beta + softplus(float64(Floats[F](in[2])[0])), beta,
		float64(Floats[F](in[4])[0])
}

func xielu[F Float](c *CPU, in, out []Tensor) func() {
	x, y := Floats[F](in[0]), Floats[F](out[0])
	return c.Range(len(x), 1<<11, func(lo, hi int) {
		above, below, beta, eps := xieluNumbers[F](in)
		for i := lo; i < hi; i++ {
			v := float64(x[i])
			if v > 0 {
				y[i] = F(above*v*v + beta*v)
			} else {
				y[i] = F((math.Expm1(min(v, eps))-v)*below + beta*v)
			}
		}
	})
}

// XIELUGrad is the gradient of XIELU's x.
//
//	x f[M,F], p f[1], n f[1], beta f[1], eps f[1], dy f[M,F] -> dx f[M,F]
//	x > 0: dx = dy*(2*softplus(p)*x + beta)
//	else:  dx = dy*((beta + softplus(n))*(e - 1) + beta), e = exp(x) where x < eps, else 0
type XIELUGrad struct{}

// Name returns "xielu_grad".
func (XIELUGrad) Name() string { return "xielu_grad" }

// Shape returns the type of x.
func (XIELUGrad) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,F]", "f[1]", "f[1]", "f[1]", "f[1]", "f[M,F]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3, 4, 5); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

// InPlace lets dx replace x or dy.
func (XIELUGrad) InPlace() []Alias { return []Alias{{0, 0}, {0, 5}} }

// CPU shares values among workers.
func (XIELUGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], xieluGrad[float32], xieluGrad[float64])(c, in, out)
}

func xieluGrad[F Float](c *CPU, in, out []Tensor) func() {
	x, dy, dx := Floats[F](in[0]), Floats[F](in[5]), Floats[F](out[0])
	return c.Range(len(x), 1<<11, func(lo, hi int) {
		above, below, beta, eps := xieluNumbers[F](in)
		for i := lo; i < hi; i++ {
			v, slope := float64(x[i]), -1.0
			switch {
			case v > 0:
				dx[i] = F(float64(dy[i]) * (2*above*v + beta))
				continue
			case v < eps:
				slope = math.Expm1(v)
			}
			dx[i] = F(float64(dy[i]) * (slope*below + beta))
		}
	})
}

// Cost counts a pass over the values.
func (XIELU) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 6) }

// Cost counts a pass over the values.
func (XIELUGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 6) }

// Stored keeps p, n, beta and eps in fp32.
func (XIELU) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, F32, F32, F32}, []DType{ComputeType}
}

// Stored keeps p, n, beta and eps in fp32.
func (XIELUGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, F32, F32, F32, ComputeType}, []DType{ComputeType}
}
