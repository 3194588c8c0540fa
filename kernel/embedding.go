package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// Embedding takes a row of a frozen table for every id. Float is the type of the result, F32 or F64.
// An id outside the table gives a row of NaN: the data set checks ids.
//
// Scale, where it is not zero, multiplies the result; it is first rounded to the type that the result is computed and
// stored in, as transformers rounds Gemma's.
//
//	ids i32[M], table w[V,C] -> y f[M,C] = table[ids], times Scale
type Embedding struct {
	Float DType
	Scale float64
}

func (Embedding) Name() string { return "embedding" }

func (o Embedding) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "i32[M]", "w[V,C]")
	if err != nil {
		return nil, err
	}
	if o.Float != F32 && o.Float != F64 {
		return nil, fmt.Errorf("attribute Float is %v, want f32 or f64", o.Float)
	}
	if math.IsNaN(o.Scale) || math.IsInf(o.Scale, 0) {
		return nil, fmt.Errorf("attribute Scale is %v, want a finite number", o.Scale)
	}
	return []Type{T(o.Float, d.At('M'), d.At('C'))}, nil
}

func (o Embedding) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(out[0], embedding[float32], embedding[float64])(c, o, in, out)
}

func embedding[F Float](c *CPU, o Embedding, in, out []Tensor) func() {
	ids, row, y := in[0].I32(), converter[F](in[1]), Floats[F](out[0])
	vocab, width, nan, scale, l := in[1].Shape[0], in[1].Shape[1], F(math.NaN()), F(o.Scale), simd.Best[F]()
	return c.Range(len(ids), rowGrain(width), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			y, id := y[i*width:][:width], int(ids[i])
			if id >= 0 && id < vocab {
				row(y, id*width)
				if scale != 0 {
					l.Scale(y, y, scale)
				}
				continue
			}
			for j := range y {
				y[j] = nan
			}
		}
	})
}

// Cost reads of the table what is taken, or the table once where it is smaller.
func (o Embedding) Cost(in, out []Type, _ Content) Cost {
	c := Cost{Bytes: in[0].Bytes() + min(int64(out[0].Elems())*int64(in[1].DType.Size()), in[1].Bytes()) + moved(out)}
	if o.Scale != 0 {
		c.FLOPs = int64(out[0].Elems())
	}
	return c
}

func (Embedding) Stored([]DType) (want, out []DType) {
	return []DType{I32, ComputeType}, []DType{ComputeType}
}
