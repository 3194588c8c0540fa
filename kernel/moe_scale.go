package kernel

// ScaleSlots multiplies every sorted row by the weight of its token's slot. As what follows is linear, scaling what goes into
// an expert's last projection is the same as scaling what comes out of it, which then need not be kept.
//
//	x f[M*K,F], weights f[M,K], rows i32[M,K], source i32[M*K] -> y f[M*K,F] = x * weights[source], 0 where a row has no slot
type ScaleSlots struct{}

// Cheap: its output costs less to recompute than to keep.
func (ScaleSlots) Cheap() {}

func (ScaleSlots) Name() string { return "moe_scale" }

func (ScaleSlots) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,F]", "f[M,K]", "i32[M,K]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if err := checkSlots(in, d); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (ScaleSlots) Grads() Backward {
	return Backward{
		Calls: []Call{
			{ScaleSlots{}, []Ref{Upstream(), In(1), In(2), In(3)}},
			{ScaleSlotsGrad{}, []Ref{In(0), Upstream(), In(2), In(3)}},
		},
		Grads: []Ref{FromCall(0, 0), FromCall(1, 0), {}, {}},
	}
}

func (ScaleSlots) InPlace() []Alias { return []Alias{{0, 0}} }

func (ScaleSlots) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scaleSlots[float32], scaleSlots[float64])(c, in, out)
}

func scaleSlots[F Float](c *CPU, in, out []Tensor) func() {
	x, weights, source, y := Floats[F](in[0]), Floats[F](in[1]), in[3].I32(), Floats[F](out[0])
	width := in[0].Shape[1]
	return c.Range(len(source), rowGrain(width), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			x, y := x[r*width:][:width], y[r*width:][:width]
			s := int(source[r])
			if s < 0 || s >= len(weights) {
				clear(y)
				continue
			}
			w := weights[s]
			for i, v := range x {
				y[i] = v * w
			}
		}
	})
}

// ScaleSlotsGrad is the gradient of ScaleSlots for the weights.
//
//	x f[M*K,F], dy f[M*K,F], rows i32[M,K], source i32[M*K] -> dw f[M,K] = sum(x[rows]*dy[rows]), 0 where a slot has no row
type ScaleSlotsGrad struct{}

func (ScaleSlotsGrad) Name() string { return "moe_scale_grad" }

func (ScaleSlotsGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,F]", "f[S,F]", "i32[M,K]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if err := checkSlots(in, d); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('M'), d.At('K'))}, nil
}

func (ScaleSlotsGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], scaleSlotsGrad[float32], scaleSlotsGrad[float64])(c, in, out)
}

func scaleSlotsGrad[F Float](c *CPU, in, out []Tensor) func() {
	x, dy, rows, dw := Floats[F](in[0]), Floats[F](in[1]), in[2].I32(), Floats[F](out[0])
	n, width := in[0].Shape[0], in[0].Shape[1]
	return c.Range(len(rows), rowGrain(width), func(lo, hi int) {
		for s := lo; s < hi; s++ {
			sum, r := 0.0, int(rows[s])
			if r >= 0 && r < n {
				dy := dy[r*width:][:width]
				for i, v := range x[r*width:][:width] {
					sum += float64(float64(v) * float64(dy[i]))
				}
			}
			dw[s] = F(sum)
		}
	})
}

func (ScaleSlots) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (ScaleSlotsGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 2) }
