package kernel

import "math"

// Lion is one step of Lion with decoupled weight decay (Chen et al., "Symbolic Discovery of Optimization Algorithms",
// 2023) over all trained elements at once. It keeps one moment.
//
//	p, g, m f[P]; clip f[2] as GradNorm gives it; hyper f[H], the learning rate lr first; (scaling if Scaled)
//	g' = g clip[1]
//	p' = p (1 - lr WeightDecay) - lr sign(Beta1 m + (1-Beta1) g')   // sign(0) = 0
//	m' = Beta2 m + (1-Beta2) g'
//
// Outputs p' and m' are in the memory of p and m. Where clip[1] is not a number nothing changes. Scaled, the scale is
// in clip[1] already; a step skipped changes nothing here.
type Lion struct {
	Beta1, Beta2, WeightDecay float64
	Scaled                    bool
}

func (Lion) Name() string { return "lion" }

func (k Lion) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, withScaling(k.Scaled, "f[P]", "f[P]", "f[P]", "f[2]", "f[H]")...); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3, 4, len(in)-1); err != nil {
		return nil, err
	}
	return []Type{in[0], in[2]}, nil
}

func (Lion) Overwrites() []Alias { return []Alias{{0, 0}, {1, 2}} }

func (k Lion) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], lion[float32], lion[float64])(k, c, in, out)
}

// lion rounds every operation by itself, as the device does: the sign of a sum near zero hangs on it.
func lion[F Float](k Lion, c *CPU, in, out []Tensor) func() {
	g, clip, hyper := Floats[F](in[1]), Floats[F](in[3]), Floats[F](in[4])
	p, m := Floats[F](out[0]), Floats[F](out[1])
	b1, to1, b2, to2, decay := F(k.Beta1), F(1-k.Beta1), F(k.Beta2), F(1-k.Beta2), float64(F(k.WeightDecay))
	return c.Range(len(p), 1<<13, func(lo, hi int) {
		factor, lr := clip[1], hyper[0]
		if math.IsNaN(float64(factor)) {
			return
		}
		keep := F(1 - float64(lr)*decay)
		p, g, m := p[lo:hi], g[lo:hi], m[lo:hi]
		for i, w := range p {
			d := F(g[i] * factor)
			step := F(b1*m[i]) + F(to1*d)
			switch {
			case step > 0:
				step = 1
			case step < 0:
				step = -1
			}
			p[i] = F(w*keep) - F(lr*step)
			m[i] = F(b2*m[i]) + F(to2*d)
		}
	})
}

func (Lion) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 11) }

func (k Lion) Stored([]DType) (want, out []DType) {
	return storedScaling(k.Scaled, F32, F32, F32, F32, F32), []DType{F32, F32}
}
