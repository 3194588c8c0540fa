package kernel

// Likeliest is the place of the largest number of each row, of equals the first.
//
//	x f[M,N] -> place i32[M]; -1 - i where number i of the row is the first that is not finite
type Likeliest struct{}

func (Likeliest) Name() string { return "likeliest" }

func (Likeliest) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,N]")
	if err != nil {
		return nil, err
	}
	return []Type{T(I32, d.At('M'))}, nil
}

func (Likeliest) CPU(c *CPU, in, out []Tensor) func() {
	if in[0].DType == F64 {
		return likeliest(c, in[0].F64(), in[0].Shape[1], out[0].I32())
	}
	return likeliest(c, in[0].F32(), in[0].Shape[1], out[0].I32())
}

func likeliest[F Float](c *CPU, x []F, width int, places []int32) func() {
	return c.Range(len(places), 1, func(lo, hi int) {
		for m := lo; m < hi; m++ {
			places[m] = likeliestOf(x[m*width:][:width])
		}
	})
}

func likeliestOf[F Float](row []F) int32 {
	at := 0
	for i, v := range row {
		if v-v != 0 {
			return -1 - int32(i)
		}
		if v > row[at] {
			at = i
		}
	}
	return int32(at)
}

func (Likeliest) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 2) }

// Stored keeps logits in fp32.
func (Likeliest) Stored([]DType) (want, out []DType) { return []DType{F32}, []DType{I32} }
