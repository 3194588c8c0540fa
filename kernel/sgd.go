package kernel

import "math"

// SGD is one step of stochastic gradient descent with momentum over all trained elements at once, in the order of
// torch's SGD without dampening. The weight decay is added to the gradient, so it is not decoupled.
//
//	p, g, m f[P]; clip f[2] as GradNorm gives it; hyper f[H], the learning rate lr first; (scaling if Scaled)
//	d  = g clip[1] + WeightDecay p
//	m' = Momentum m + d
//	p' = p - lr m', or p - lr (d + Momentum m') with Nesterov
//
// Outputs p' and m' are in the memory of p and m. If clip[1] is not a number nothing changes. With Scaled, clip[1]
// already has the loss scale; a skipped step changes nothing.
type SGD struct {
	Momentum, WeightDecay float64
	Nesterov, Scaled      bool
}

func (SGD) Name() string { return "sgd" }

// Shape returns the types of p' and m'.
func (k SGD) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, withScaling(k.Scaled, "f[P]", "f[P]", "f[P]", "f[2]", "f[H]")...); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3, 4, len(in)-1); err != nil {
		return nil, err
	}
	return []Type{in[0], in[2]}, nil
}

func (SGD) Overwrites() []Alias { return []Alias{{0, 0}, {1, 2}} }

func (k SGD) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], sgd[float32], sgd[float64])(k, c, in, out)
}

// sgd rounds every operation by itself, as the device does.
func sgd[F Float](k SGD, c *CPU, in, out []Tensor) func() {
	g, clip, hyper := Floats[F](in[1]), Floats[F](in[3]), Floats[F](in[4])
	p, m := Floats[F](out[0]), Floats[F](out[1])
	momentum, decay := F(k.Momentum), F(k.WeightDecay)
	return c.Range(len(p), 1<<13, func(lo, hi int) {
		factor, lr := clip[1], hyper[0]
		if math.IsNaN(float64(factor)) {
			return
		}
		p, g, m := p[lo:hi], g[lo:hi], m[lo:hi]
		for i, w := range p {
			d := F(g[i]*factor) + F(decay*w)
			m[i] = F(momentum*m[i]) + d
			step := m[i]
			if k.Nesterov {
				step = d + F(momentum*step)
			}
			p[i] = w - F(lr*step)
		}
	})
}

func (SGD) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 9) }

func (k SGD) Stored([]DType) (want, out []DType) {
	return storedScaling(k.Scaled, F32, F32, F32, F32, F32), []DType{F32, F32}
}
