package kernel

// AddBias adds a frozen vector to every row.
//
//	y = x + b   // x f[M,N], b w[N] -> f[M,N]
type AddBias struct{}

func (AddBias) Name() string { return "bias" }

func (AddBias) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,N]", "w[N]"); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (AddBias) Grads() Backward { return Backward{Grads: []Ref{Upstream(), {}}} }

func (AddBias) InPlace() []Alias { return []Alias{{0, 0}} }

func (AddBias) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], addBias[float32], addBias[float64])(c, in, out)
}

func addBias[F Float](c *CPU, in, out []Tensor) func() {
	x, y := Floats[F](in[0]), Floats[F](out[0])
	bias, load := frozenRow[F](in[1])
	n := len(bias)
	return after(load, c.Range(in[0].Shape[0], max(1, 1<<14/max(n, 1)), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			x, y := x[m*n:][:n], y[m*n:][:n]
			for i, b := range bias {
				y[i] = x[i] + b
			}
		}
	}))
}

func (AddBias) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (AddBias) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}
