package kernel

import (
	"fmt"
	"math"
)

// Embedding takes a row of a frozen table for every id. Float is the type of the result, F32 or F64.
// An id outside the table gives a row of NaN: the data set checks ids.
//
//	ids i32[M], table w[V,C] -> y f[M,C] = table[ids]
type Embedding struct{ Float DType }

func (Embedding) Name() string { return "embedding" }

func (o Embedding) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "i32[M]", "w[V,C]")
	if err != nil {
		return nil, err
	}
	if o.Float != F32 && o.Float != F64 {
		return nil, fmt.Errorf("attribute Float is %v, want f32 or f64", o.Float)
	}
	return []Type{T(o.Float, d.At('M'), d.At('C'))}, nil
}

func (o Embedding) CPU(c *CPU, in, out []Tensor) func() {
	if o.Float == F64 {
		return embedding[float64](c, in, out)
	}
	return embedding[float32](c, in, out)
}

func embedding[F Float](c *CPU, in, out []Tensor) func() {
	ids, row, y := in[0].I32(), converter[F](in[1]), Floats[F](out[0])
	vocab, width, nan := in[1].Shape[0], in[1].Shape[1], F(math.NaN())
	return c.Range(len(ids), rowGrain(width), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			y, id := y[i*width:][:width], int(ids[i])
			if id >= 0 && id < vocab {
				row(y, id*width)
				continue
			}
			for j := range y {
				y[j] = nan
			}
		}
	})
}
