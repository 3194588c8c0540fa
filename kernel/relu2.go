package kernel

// ReLU2 is the squared rectifier, the activation of MLPs without a gate (So et al., "Primer: Searching for Efficient
// Transformers for Language Modeling", 2021).
//
//	x f[M,F] -> y f[M,F] = max(x, 0)^2
type ReLU2 struct{}

// Cheap: its output costs less to recompute than to keep.
func (ReLU2) Cheap() {}

// Name returns the operation's stem.
func (ReLU2) Name() string { return "relu2" }

// Shape checks the inputs and returns the outputs' types.
func (ReLU2) Shape(in []Type) ([]Type, error) {
	t, err := sameFloats(in, 1)
	if err != nil {
		return nil, err
	}
	return []Type{t}, nil
}

// Grads computes the gradient of the input.
func (ReLU2) Grads() Backward {
	return Backward{
		Calls: []Call{{ReLU2Grad{}, []Ref{In(0), Upstream()}}},
		Grads: []Ref{FromCall(0, 0)},
	}
}

// InPlace allows the output in the input's memory.
func (ReLU2) InPlace() []Alias { return []Alias{{0, 0}} }

// CPU binds the operation to memory.
func (ReLU2) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], relu2[float32], relu2[float64])(c, in, out)
}

func relu2[F Float](c *CPU, in, out []Tensor) func() {
	x, y := Floats[F](in[0]), Floats[F](out[0])
	return c.Range(len(y), 1<<13, func(lo, hi int) {
		for i, v := range x[lo:hi] {
			v = max(v, 0)
			y[lo+i] = v * v
		}
	})
}

// ReLU2Grad is the gradient of ReLU2.
//
//	x f[M,F], dy f[M,F] -> dx f[M,F] = 2*max(x, 0)*dy
type ReLU2Grad struct{}

// Name returns the operation's stem.
func (ReLU2Grad) Name() string { return "relu2_grad" }

// Shape checks the inputs and returns the outputs' types.
func (ReLU2Grad) Shape(in []Type) ([]Type, error) {
	t, err := sameFloats(in, 2)
	if err != nil {
		return nil, err
	}
	return []Type{t}, nil
}

// InPlace allows the output in the memory of an input.
func (ReLU2Grad) InPlace() []Alias { return []Alias{{0, 0}, {0, 1}} }

// CPU binds the operation to memory.
func (ReLU2Grad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], relu2Grad[float32], relu2Grad[float64])(c, in, out)
}

func relu2Grad[F Float](c *CPU, in, out []Tensor) func() {
	x, dy, dx := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0])
	return c.Range(len(dx), 1<<13, func(lo, hi int) {
		for i, v := range x[lo:hi] {
			dx[lo+i] = 2 * max(v, 0) * dy[lo+i]
		}
	})
}

// Cost counts the bytes of inputs and outputs, and the multiplications.
func (ReLU2) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 2) }

// Cost counts the bytes of inputs and outputs, and the multiplications.
func (ReLU2Grad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 3) }

// Stored computes in the type of activations.
func (ReLU2) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}

// Stored computes in the type of activations.
func (ReLU2Grad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}
