package kernel

import (
	"fmt"
	"sort"
)

// SequenceSums sums a number of every token over each sequence of a batch, as objectives over whole answers need it.
//
//	x f[M], labels i32[M], starts i32[S+1] -> sums f[S], counts f[S]
//	x f[R,M], labels i32[M], starts i32[S+1] -> sums f[R,S], counts f[S]
//
// Sequence s is the tokens from starts[s] up to, but without, starts[s+1]; starts never fall, so an empty sequence has
// two equal ones and a sum of zero. Tokens labelled -100 are left out, and counts are the numbers of the others. Tokens
// outside every sequence count nowhere. Each sum has a fixed order. The gradient of a token's x is that of its
// sequence's sum.
type SequenceSums struct{}

// Name returns "sequence_sums".
func (SequenceSums) Name() string { return "sequence_sums" }

// Shape returns the types of sums and counts.
func (SequenceSums) Shape(in []Type) ([]Type, error) {
	d, rows, err := sequenceShapes(in, 0, "M", "i32[M]", "i32[B]")
	if err != nil {
		return nil, err
	}
	if d.At('B') == 0 {
		return nil, fmt.Errorf("input 2 is %v, want the start of each sequence and the end of the last", in[2])
	}
	sums := T(in[0].DType, d.At('B')-1)
	if counts := sums; rows > 0 {
		return []Type{T(in[0].DType, rows, d.At('B')-1), counts}, nil
	}
	return []Type{sums, sums}, nil
}

// sequenceShapes checks inputs of which input i is f[N] or f[R,N], N being a letter; it returns R, or 0 where there is
// none.
func sequenceShapes(in []Type, i int, letter string, others ...string) (d Dims, rows int, err error) {
	form := "f[" + letter + "]"
	if i < len(in) && len(in[i].Shape) == 2 {
		form, rows = "f[R,"+letter+"]", in[i].Shape[0]
		if rows == 0 {
			return d, 0, fmt.Errorf("input %d is %v: it has no rows", i, in[i])
		}
	}
	patterns := append(append(append([]string(nil), others[:i]...), form), others[i:]...)
	d, err = Want(in, patterns...)
	return d, rows, err
}

// Grads gives each token the gradient of its sequence's sum.
func (SequenceSums) Grads() Backward {
	return Backward{Calls: []Call{{SequenceSumsGrad{}, []Ref{In(1), In(2), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), {}, {}}}
}

// CPU binds the float64 or the float32 body.
func (SequenceSums) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], sequenceSums[float32], sequenceSums[float64])(c, in, out)
}

func sequenceSums[F Float](c *CPU, in, out []Tensor) func() {
	x, labels, starts, sums, counts := Floats[F](in[0]), in[1].I32(), in[2].I32(), Floats[F](out[0]), Floats[F](out[1])
	M, S := len(labels), len(starts)-1
	return c.Range(S, 1, func(lo, hi int) {
		for s := lo; s < hi; s++ {
			first, end := tokensOf(starts, s, M)
			for row := 0; row*M < len(x); row++ {
				sum, n := 0.0, 0
				for m := first; m < end; m++ {
					if labels[m] != Untrained {
						sum += float64(x[row*M+m])
						n++
					}
				}
				sums[row*S+s], counts[s] = F(sum), F(n)
			}
			if len(x) == 0 {
				counts[s] = 0
			}
		}
	})
}

// tokensOf returns the first token of sequence s and the one after its last, both within M tokens.
func tokensOf(starts []int32, s, M int) (first, end int) {
	return min(max(int(starts[s]), 0), M), min(max(int(starts[s+1]), 0), M)
}

// Cost counts one sum for each number.
func (SequenceSums) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 1) }

// Stored keeps everything in fp32.
func (SequenceSums) Stored([]DType) (want, out []DType) {
	return []DType{F32, I32, I32}, []DType{F32, F32}
}

// SequenceSumsGrad is the gradient of SequenceSums: each token's is that of its sequence's sum, and zero for tokens
// labelled -100 and for those outside every sequence.
//
//	labels i32[M], starts i32[S+1], dsums f[S] or f[R,S] -> dx f[M] or f[R,M]
type SequenceSumsGrad struct{}

// Name returns "sequence_sums_grad".
func (SequenceSumsGrad) Name() string { return "sequence_sums_grad" }

// Shape returns the type of dx.
func (SequenceSumsGrad) Shape(in []Type) ([]Type, error) {
	d, rows, err := sequenceShapes(in, 2, "S", "i32[M]", "i32[B]")
	if err != nil {
		return nil, err
	}
	if d.At('B') != d.At('S')+1 {
		return nil, fmt.Errorf("input 1 is %v and input 2 is %v: there must be one start more than sequences", in[1],
			in[2])
	}
	if rows > 0 {
		return []Type{T(in[2].DType, rows, d.At('M'))}, nil
	}
	return []Type{T(in[2].DType, d.At('M'))}, nil
}

// CPU binds the float64 or the float32 body.
func (SequenceSumsGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[2], sequenceSumsGrad[float32], sequenceSumsGrad[float64])(c, in, out)
}

func sequenceSumsGrad[F Float](c *CPU, in, out []Tensor) func() {
	labels, starts, dsums, dx := in[0].I32(), in[1].I32(), Floats[F](in[2]), Floats[F](out[0])
	M, S := len(labels), len(starts)-1
	return c.Range(M, rowGrain(1), func(lo, hi int) {
		// The sequence of a token is the last that starts at or before it.
		s := sort.Search(S+1, func(s int) bool { return int(starts[s]) > lo }) - 1
		for m := lo; m < hi; m++ {
			for s < S && int(starts[s+1]) <= m {
				s++
			}
			for row := 0; row*M < len(dx); row++ {
				dx[row*M+m] = 0
				if s >= 0 && s < S && labels[m] != Untrained {
					dx[row*M+m] = dsums[row*S+s]
				}
			}
		}
	})
}

// Cost counts no arithmetic: numbers are copied.
func (SequenceSumsGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 0) }

// Stored keeps everything in fp32.
func (SequenceSumsGrad) Stored([]DType) (want, out []DType) {
	return []DType{I32, I32, F32}, []DType{F32}
}
