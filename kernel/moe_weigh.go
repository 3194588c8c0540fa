package kernel

// WeighExperts multiplies what a token's experts count by a frozen number of each expert, as Gemma 4 does. The numbers have no
// gradient.
//
//	weights f[M,K], experts i32[M,K], scale f[E] -> f[M,K]: weights * scale[experts]
//
// An expert that is none counts nothing.
type WeighExperts struct{}

func (WeighExperts) Name() string { return "moe_weigh" }

func (WeighExperts) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,K]", "i32[M,K]", "f[E]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 2); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (o WeighExperts) Grads() Backward {
	return Backward{Calls: []Call{{o, []Ref{Upstream(), In(1), In(2)}}}, Grads: []Ref{FromCall(0, 0), {}, {}}}
}

func (WeighExperts) InPlace() []Alias { return []Alias{{0, 0}} }

func (WeighExperts) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], weighExperts[float32], weighExperts[float64])(c, in, out)
}

func weighExperts[F Float](c *CPU, in, out []Tensor) func() {
	w, experts, scale, y := Floats[F](in[0]), in[1].I32(), Floats[F](in[2]), Floats[F](out[0])
	return c.Range(len(y), 1<<14, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if e := int(experts[i]); e >= 0 && e < len(scale) {
				y[i] = w[i] * scale[e]
			} else {
				y[i] = 0
			}
		}
	})
}

func (WeighExperts) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }
