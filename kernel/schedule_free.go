package kernel

import "math"

// ScheduleFreeAdamW is one step of schedule-free AdamW (Defazio et al., "The Road Less Scheduled", 2024) over all
// trained elements at once, as the package schedulefree computes it. The parameters p are the paper's y, where
// gradients are taken; x is the average to evaluate and save; z is the sequence that plain steps move.
//
//	p, g, x, z, v f[P]; weight f[4] as ScheduleFreeWeight gives it for this step; clip f[2] as GradNorm gives it;
//	hyper f[4] = (lr, -, 1-Beta2^t, t as the bits of a float32); (scaling if Scaled)
//	d = g clip[1];  v' = Beta2 v + (1-Beta2) d²
//	z' = z - lr (d / (sqrt(v'/hyper[2]) + Eps) + WeightDecay p)
//	x' = (1-c) x + c z';  c = weight[2]
//	p' = Beta1 x' + (1-Beta1) z'
//
// In the first step, weight[3] = 1, x and z are p. Outputs p', x', z', v' are in the memory of what they replace. If
// clip[1] is not a number nothing changes. With Scaled, the correction is the one of t less the skipped steps.
type ScheduleFreeAdamW struct {
	Beta1, Beta2, Eps, WeightDecay float64
	Scaled                         bool
}

func (ScheduleFreeAdamW) Name() string { return "schedule_free" }

// Shape returns the types of p', x', z' and v'.
func (k ScheduleFreeAdamW) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, withScaling(k.Scaled, "f[P]", "f[P]", "f[P]", "f[P]", "f[P]", "f[4]", "f[2]",
		"f[4]")...); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3, 4, 5, 6, 7, len(in)-1); err != nil {
		return nil, err
	}
	return []Type{in[0], in[2], in[3], in[4]}, nil
}

func (ScheduleFreeAdamW) Overwrites() []Alias { return []Alias{{0, 0}, {1, 2}, {2, 3}, {3, 4}} }

func (k ScheduleFreeAdamW) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scheduleFree[float32], scheduleFree[float64])(k, c, in, out)
}

// scheduleFree rounds every operation by itself, as the device does.
func scheduleFree[F Float](k ScheduleFreeAdamW, c *CPU, in, out []Tensor) func() {
	g, weight, clip, hyper := Floats[F](in[1]), Floats[F](in[5]), Floats[F](in[6]), Floats[F](in[7])
	scaling := lossScaling[F](k.Scaled, in, 8)
	p, x, z, v := Floats[F](out[0]), Floats[F](out[1]), Floats[F](out[2]), Floats[F](out[3])
	b1, to1, b2, to2, eps, decay := F(k.Beta1), F(1-k.Beta1), F(k.Beta2), F(1-k.Beta2), F(k.Eps), F(k.WeightDecay)
	return c.Range(len(p), 1<<13, func(lo, hi int) {
		factor, lr, share := clip[1], hyper[0], weight[2]
		if math.IsNaN(float64(factor)) {
			return
		}
		correct := hyper[2]
		if k.Scaled {
			t := float64(math.Float32bits(float32(hyper[3]))) - float64(scaling[LossScaleSkipped])
			correct = F(1 - math.Pow(k.Beta2, t))
		}
		first, rest := weight[3] == 1, F(1-share)
		p, g, x, z, v := p[lo:hi], g[lo:hi], x[lo:hi], z[lo:hi], v[lo:hi]
		for i, y := range p {
			if first {
				x[i], z[i] = y, y
			}
			d := F(g[i] * factor)
			v[i] = F(b2*v[i]) + F(to2*F(d*d))
			step := F(d/(F(math.Sqrt(float64(F(v[i]/correct))))+eps)) + F(decay*y)
			z[i] -= F(lr * step)
			x[i] = F(rest*x[i]) + F(share*z[i])
			p[i] = F(b1*x[i]) + F(to1*z[i])
		}
	})
}

func (ScheduleFreeAdamW) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 20) }

func (k ScheduleFreeAdamW) Stored([]DType) (want, out []DType) {
	return storedScaling(k.Scaled, F32, F32, F32, F32, F32, F32, F32, F32), []DType{F32, F32, F32, F32}
}

// ScheduleFreeWeight counts a step of schedule-free AdamW and computes the share of its z in the average x: the
// square of the largest learning rate so far, divided by the sum of these squares over all steps.
//
//	weight f[4] = (largest rate, sum of squares, share of the last step, number of steps);
//	clip f[2] as GradNorm gives it; hyper f[4], the learning rate first
//
// The share is 0 while all rates were 0. The output is in the memory of weight. If clip[1] is not a number nothing
// changes.
type ScheduleFreeWeight struct{}

func (ScheduleFreeWeight) Name() string { return "schedule_free_weight" }

// Shape returns the type of the new weight.
func (ScheduleFreeWeight) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[4]", "f[2]", "f[4]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (ScheduleFreeWeight) Overwrites() []Alias { return []Alias{{0, 0}} }

func (k ScheduleFreeWeight) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scheduleFreeWeight[float32], scheduleFreeWeight[float64])(c, in, out)
}

func scheduleFreeWeight[F Float](_ *CPU, in, out []Tensor) func() {
	clip, hyper, w := Floats[F](in[1]), Floats[F](in[2]), Floats[F](out[0])
	return func() {
		if math.IsNaN(float64(clip[1])) {
			return
		}
		w[0] = max(w[0], hyper[0])
		square := F(w[0] * w[0])
		if w[1] += square; w[1] > 0 {
			w[2] = square / w[1]
		}
		w[3]++
	}
}

func (ScheduleFreeWeight) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 1) }

// Stored returns fp32 for all tensors.
func (ScheduleFreeWeight) Stored([]DType) (want, out []DType) {
	return []DType{F32, F32, F32}, []DType{F32}
}

// ScheduleFreeShow writes into the parameters p which weights of schedule-free AdamW are used: with Average x, which is
// evaluated and saved, else the point y = Beta1 x + (1-Beta1) z, where the next gradient is taken.
//
//	p, x, z f[P]; weight f[4] as ScheduleFreeWeight gives it
//
// Before the first step, weight[3] = 0, p stays as it is. The output is in the memory of p.
type ScheduleFreeShow struct {
	Beta1   float64
	Average bool
}

func (ScheduleFreeShow) Name() string { return "schedule_free_show" }

// Shape returns the type of p.
func (ScheduleFreeShow) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[P]", "f[P]", "f[P]", "f[4]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1, 2, 3); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (ScheduleFreeShow) Overwrites() []Alias { return []Alias{{0, 0}} }

func (k ScheduleFreeShow) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scheduleFreeShow[float32], scheduleFreeShow[float64])(k, c, in, out)
}

func scheduleFreeShow[F Float](k ScheduleFreeShow, c *CPU, in, out []Tensor) func() {
	x, z, weight, p := Floats[F](in[1]), Floats[F](in[2]), Floats[F](in[3]), Floats[F](out[0])
	b1, to1 := F(k.Beta1), F(1-k.Beta1)
	return c.Range(len(p), 1<<13, func(lo, hi int) {
		if weight[3] == 0 {
			return
		}
		if k.Average {
			copy(p[lo:hi], x[lo:hi])
			return
		}
		for i := lo; i < hi; i++ {
			p[i] = F(b1*x[i]) + F(to1*z[i])
		}
	})
}

func (ScheduleFreeShow) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 3) }

// Stored returns fp32 for all tensors.
func (ScheduleFreeShow) Stored([]DType) (want, out []DType) {
	return []DType{F32, F32, F32, F32}, []DType{F32}
}
