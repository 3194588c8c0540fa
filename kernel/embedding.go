package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// Embedding takes a row of a table for every id. Float is the type of the result, F32 or F64.
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
	if err := checkScale(o.Scale); err != nil {
		return nil, err
	}
	return []Type{T(o.Float, d.At('M'), d.At('C'))}, nil
}

// Grads adds up the rows' gradients, where the table is trained.
func (o Embedding) Grads() Backward {
	return Backward{Calls: []Call{{EmbeddingGrad{o.Scale}, []Ref{In(0), In(1), Upstream()}}},
		Grads: []Ref{{}, FromCall(0, 0)}}
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

// EmbeddingGrad is the gradient of Embedding for its table. The gradients of ids that occur several times are added in
// the order of the ids; rows whose id does not occur are zero. Of the table the shape alone is used. An id outside the
// table adds nothing.
//
//	ids i32[M], table w[V,C], dy f[M,C] -> dtable f[V,C], dtable[id] = Scale * sum of dy over the places of id
type EmbeddingGrad struct{ Scale float64 }

// Name returns "embedding_grad".
func (EmbeddingGrad) Name() string { return "embedding_grad" }

// Shape returns the table's shape.
func (o EmbeddingGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "i32[M]", "w[V,C]", "f[M,C]")
	if err != nil {
		return nil, err
	}
	if err := checkScale(o.Scale); err != nil {
		return nil, err
	}
	return []Type{T(in[2].DType, d.At('V'), d.At('C'))}, nil
}

// Accumulate returns the form that adds to the rows of the ids and leaves the others.
func (o EmbeddingGrad) Accumulate() (Kernel, bool) { return Onto[EmbeddingGrad]{o}, true }

func (EmbeddingGrad) accumulation() accumulation {
	return accumulation{inputs: 3, results: 1, anyType: true}
}

// CPU binds the float64 or the float32 body.
func (o EmbeddingGrad) CPU(c *CPU, in, out []Tensor) func() { return o.bind(c, in, out, 0) }

func (o EmbeddingGrad) bind(c *CPU, in, out []Tensor, beta float64) func() {
	return byFloat(in[2], embeddingGrad[float32], embeddingGrad[float64])(c, o, in, out, beta)
}

// embeddingGrad divides the columns among the workers, each of which adds in the order of the ids.
func embeddingGrad[F Float](c *CPU, o EmbeddingGrad, in, out []Tensor, beta float64) func() {
	const columns = 64
	ids, dy, table := in[0].I32(), Floats[F](in[2]), Floats[F](out[0])
	vocab, width, scale := out[0].Shape[0], out[0].Shape[1], F(1)
	if o.Scale != 0 {
		scale = F(o.Scale)
	}
	return c.Range(width, columns, func(lo, hi int) {
		for row := 0; row < vocab && beta == 0; row++ {
			clear(table[row*width:][lo:hi])
		}
		for i, id := range ids {
			if id < 0 || int(id) >= vocab {
				continue
			}
			to, from := table[int(id)*width:][lo:hi], dy[i*width:][lo:hi]
			for j, g := range from {
				to[j] += F(scale * g)
			}
		}
	})
}

// Cost counts the gradients that arrive, and the table's once; rows that are added to are read too.
func (o EmbeddingGrad) Cost(in, out []Type, _ Content) Cost {
	return Cost{Bytes: in[0].Bytes() + in[2].Bytes() + out[0].Bytes(), FLOPs: int64(in[2].Elems())}
}

// Stored keeps the table's gradient in fp32.
func (EmbeddingGrad) Stored([]DType) (want, out []DType) {
	return []DType{I32, ComputeType, ComputeType}, []DType{F32}
}
