package kernel

// Add is the sum of two tensors of one type.
//
//	y = a + b
type Add struct{}

func (Add) Name() string { return "add" }

func (Add) Shape(in []Type) ([]Type, error) {
	if _, err := sameFloats(in, 2); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (Add) Grads() Backward { return Backward{Grads: []Ref{Upstream(), Upstream()}} }

func (Add) InPlace() []Alias { return []Alias{{0, 0}, {0, 1}} }

func (Add) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], add[float32], add[float64])(c, in, out)
}

// AddTo adds its second input to the first, in the first one's memory.
type AddTo struct{}

func (AddTo) Name() string { return "add" }

func (AddTo) Shape(in []Type) ([]Type, error) { return Add{}.Shape(in) }

func (AddTo) Overwrites() []Alias { return []Alias{{0, 0}} }

func (AddTo) CPU(c *CPU, in, out []Tensor) func() { return Add{}.CPU(c, in, out) }

func add[F Float](c *CPU, in, out []Tensor) func() {
	a, b, y := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0])
	return c.Range(len(y), 1<<14, func(lo, hi int) {
		a, b, y := a[lo:hi], b[lo:hi], y[lo:hi]
		for i := range y {
			y[i] = a[i] + b[i]
		}
	})
}

func (Add) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (AddTo) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (Add) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

// term is the type in which the second term of a residual sum is read: fp32 if it is stored so.
func term(stored DType) DType {
	if stored == F32 {
		return F32
	}
	return ComputeType
}

func (o AddLowBits) Stored(in []DType) (want, out []DType) {
	want = []DType{ComputeType, term(in[1])}
	if o.Carried {
		want = append(want, U8)
	}
	return want, []DType{ComputeType, U8}
}

func (AddTo) Stored(in []DType) (want, out []DType) {
	return []DType{in[0], in[0]}, []DType{in[0]}
}
