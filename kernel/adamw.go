package kernel

import (
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// AdamW is one step of Adam with decoupled weight decay (Loshchilov and Hutter 2019), in the order of torch's
// AdamW, over all trained elements at once.
//
//	p, g, m, v f[P]; clip f[2] as GradNorm gives it; hyper f[4] = (lr, 1-Beta1^t, 1-Beta2^t, t as the bits of
//	a float32); (scaling if Scaled)
//	g' = g clip[1]
//	p' = p (1 - lr WeightDecay) - lr/hyper[1] m' / (sqrt(v')/sqrt(hyper[2]) + Eps)
//	m' = m + (1-Beta1)(g' - m);  v' = Beta2 v + (1-Beta2) g'²
//
// Outputs p', m', v' are in the memory of p, m and v. Where clip[1] is not a number nothing changes.
// Scaled, the corrections are those of t less the steps skipped.
type AdamW struct {
	Beta1, Beta2, Eps, WeightDecay float64
	Scaled                         bool
}

func (AdamW) Name() string { return "adamw" }

func (k AdamW) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, withScaling(k.Scaled, "f[P]", "f[P]", "f[P]", "f[P]", "f[2]", "f[4]")...); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3, 4, 5, len(in)-1); err != nil {
		return nil, err
	}
	return []Type{in[0], in[2], in[3]}, nil
}

func (AdamW) Overwrites() []Alias { return []Alias{{0, 0}, {1, 2}, {2, 3}} }

func (k AdamW) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], adamW[float32], adamW[float64])(k, c, in, out)
}

func adamW[F Float](k AdamW, c *CPU, in, out []Tensor) func() {
	g, clip, hyper, scaling := Floats[F](in[1]), Floats[F](in[4]), Floats[F](in[5]), lossScaling[F](k.Scaled, in, 6)
	p, m, v := Floats[F](out[0]), Floats[F](out[1]), Floats[F](out[2])
	s := simd.AdamScalars[F]{ToGrad: F(1 - k.Beta1), Beta2: F(k.Beta2), ToSquare: F(1 - k.Beta2), Eps: F(k.Eps)}
	fast, _ := any(simd.AdamW()).(func(p, g, m, v []F, s simd.AdamScalars[F]) int)
	return c.Range(len(p), 1<<13, func(lo, hi int) {
		if math.IsNaN(float64(clip[1])) {
			return
		}
		lr, s := float64(hyper[0]), s
		correct1, correct2 := float64(hyper[1]), float64(hyper[2])
		if k.Scaled {
			t := float64(math.Float32bits(float32(hyper[3]))) - float64(scaling[LossScaleSkipped])
			correct1, correct2 = float64(F(1-math.Pow(k.Beta1, t))), float64(F(1-math.Pow(k.Beta2, t)))
		}
		s.Factor, s.Correct = clip[1], F(math.Sqrt(correct2))
		s.Keep, s.Size = F(1-lr*k.WeightDecay), F(-lr/correct1)
		if fast != nil {
			lo += fast(p[lo:hi], g[lo:hi], m[lo:hi], v[lo:hi], s)
		}
		p, g, m, v := p[lo:hi], g[lo:hi], m[lo:hi], v[lo:hi]
		for i, w := range p {
			d := F(g[i] * s.Factor)
			m[i] += F(s.ToGrad * (d - m[i]))
			v[i] = F(v[i]*s.Beta2) + F(s.ToSquare*F(d*d))
			p[i] = F(w*s.Keep) + F(s.Size*F(m[i]/(F(F(math.Sqrt(float64(v[i])))/s.Correct)+s.Eps)))
		}
	})
}

func (AdamW) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 15) }

func (k AdamW) Stored([]DType) (want, out []DType) {
	return storedScaling(k.Scaled, F32, F32, F32, F32, F32, F32), []DType{F32, F32, F32}
}
