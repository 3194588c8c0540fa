package kernel

import "sort"

// Pool takes one vector of every sequence from the vectors of its tokens, as heads over whole sequences need it.
//
//	x f[M,C], spans i32[S,2] -> y f[S,C]
//
// y[s] is the mean of x over the tokens spans[s,0] up to, but without, spans[s,1]. A span of one token takes the vector
// of that token as it is. An empty span, of a sequence that is not there, gives zeros. Neither the starts nor the ends
// of the spans ever fall, and spans do not overlap; tokens outside [0,M) are left out. Sums are in float64 on a CPU.
type Pool struct{}

// Name returns "pool".
func (Pool) Name() string { return "pool" }

// Shape returns the type of the vectors of the sequences.
func (Pool) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "i32[S,2]")
	if err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('S'), d.At('C'))}, nil
}

// Grads gives each token its share of the gradient of its sequence's vector.
func (Pool) Grads() Backward {
	return Backward{Calls: []Call{{PoolGrad{}, []Ref{In(0), In(1), Upstream()}}}, Grads: []Ref{FromCall(0, 0), {}}}
}

// CPU binds the float64 or the float32 body.
func (Pool) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], pool[float32], pool[float64])(c, in, out)
}

// poolSpan returns the tokens of span s, both ends within M tokens.
func poolSpan(spans []int32, s, M int) (from, to int) {
	from = min(max(int(spans[2*s]), 0), M)
	return from, min(max(int(spans[2*s+1]), from), M)
}

func pool[F Float](c *CPU, in, out []Tensor) func() {
	x, spans, y := Floats[F](in[0]), in[1].I32(), Floats[F](out[0])
	M, C, S := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	return c.Range(S, 1, func(lo, hi int) {
		for s := lo; s < hi; s++ {
			from, to := poolSpan(spans, s, M)
			for j := range C {
				sum := 0.
				for m := from; m < to; m++ {
					sum += float64(x[m*C+j])
				}
				if to > from+1 {
					sum /= float64(to - from)
				}
				y[s*C+j] = F(sum)
			}
		}
	})
}

// Cost counts one sum for each number.
func (Pool) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 1) }

// Stored keeps vectors in the type of the activations.
func (Pool) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32}, []DType{ComputeType}
}

// PoolGrad is the gradient of Pool: each token of a span has the gradient of its sequence's vector, divided by the
// length of the span; all other tokens have zero. It reads x for its shape alone.
//
//	x f[M,C], spans i32[S,2], dy f[S,C] -> dx f[M,C]
type PoolGrad struct{}

// Name returns "pool_grad".
func (PoolGrad) Name() string { return "pool_grad" }

// Shape returns the type of dx.
func (PoolGrad) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[M,C]", "i32[S,2]", "f[S,C]"); err != nil {
		return nil, err
	}
	return []Type{in[0]}, sameElements(in, 0, 2)
}

// CPU binds the float64 or the float32 body.
func (PoolGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[2], poolGrad[float32], poolGrad[float64])(c, in, out)
}

func poolGrad[F Float](c *CPU, in, out []Tensor) func() {
	spans, dy, dx := in[1].I32(), Floats[F](in[2]), Floats[F](out[0])
	M, C, S := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	return c.Range(M, rowGrain(C), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			row := dx[m*C:][:C]
			s, n := spanOf(spans, m, M, S)
			if n == 0 {
				clear(row)
				continue
			}
			for j := range row {
				row[j] = F(float64(dy[s*C+j]) / float64(n))
			}
		}
	})
}

// spanOf returns the span that token m is in and the number of its tokens; 0 tokens if it is in none.
func spanOf(spans []int32, m, M, S int) (s, n int) {
	s = sort.Search(S, func(s int) bool { _, to := poolSpan(spans, s, M); return to > m })
	if s == S {
		return 0, 0
	}
	from, to := poolSpan(spans, s, M)
	if from > m {
		return 0, 0
	}
	return s, to - from
}

// Cost counts one operation for each number.
func (PoolGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in[1:], out, out[0], 1) }

// Stored keeps vectors in the type of the activations.
func (PoolGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, ComputeType}, []DType{ComputeType}
}
