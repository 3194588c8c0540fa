package kernel

import "fmt"

// GatherTokens gives every token's row to each of its slots, in the order of SortByExpert.
//
//	x f[M,C], rows i32[M,K], source i32[M*K] -> y f[M*K,C];  y[r] = x[source[r]/K], 0 where row r has no slot
type GatherTokens struct{}

// Cheap: its output costs less to recompute than to keep.
func (GatherTokens) Cheap() {}

func (GatherTokens) Name() string { return "moe_gather" }

func (GatherTokens) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "i32[M,K]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if err := checkSlots(in, d); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('S'), d.At('C'))}, nil
}

// checkSlots checks that there is a sorted row for each token's slot.
func checkSlots(in []Type, d Dims) error {
	if d.At('S') != d.At('M')*d.At('K') {
		return fmt.Errorf("inputs %v do not fit: %d tokens of %d slots have %d sorted rows, want one a slot", in, d.At('M'), d.At('K'), d.At('S'))
	}
	return nil
}

func (GatherTokens) Grads() Backward {
	return Backward{
		Calls: []Call{{SumTokens{}, []Ref{Upstream(), In(1), In(2)}}},
		Grads: []Ref{FromCall(0, 0), {}, {}},
	}
}

func (GatherTokens) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], gatherTokens[float32], gatherTokens[float64])(c, in, out)
}

func gatherTokens[F Float](c *CPU, in, out []Tensor) func() {
	x, source, y := Floats[F](in[0]), in[2].I32(), Floats[F](out[0])
	tokens, width, k := in[0].Shape[0], in[0].Shape[1], in[1].Shape[1]
	return c.Range(len(source), rowGrain(width), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			if t := int(source[r]) / max(k, 1); source[r] >= 0 && t < tokens {
				copy(y[r*width:][:width], x[t*width:])
			} else {
				clear(y[r*width:][:width])
			}
		}
	})
}

// SumTokens adds up each token's slots, in the order of the slots: GatherTokens backwards.
//
//	x f[M*K,C], rows i32[M,K], source i32[M*K] -> y f[M,C];  y[t] = sum of x[rows[t,j]] over j, 0 where a slot has no row
type SumTokens struct{}

func (SumTokens) Name() string { return "moe_sum" }

func (SumTokens) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,C]", "i32[M,K]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if err := checkSlots(in, d); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('M'), d.At('C'))}, nil
}

func (SumTokens) Grads() Backward {
	return Backward{
		Calls: []Call{{GatherTokens{}, []Ref{Upstream(), In(1), In(2)}}},
		Grads: []Ref{FromCall(0, 0), {}, {}},
	}
}

func (SumTokens) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], sumTokens[float32], sumTokens[float64])(c, in, out)
}

func sumTokens[F Float](c *CPU, in, out []Tensor) func() {
	x, rows, y := Floats[F](in[0]), in[1].I32(), Floats[F](out[0])
	width, k := in[0].Shape[1], in[1].Shape[1]
	return c.Range(out[0].Shape[0], rowGrain(width*k), func(lo, hi int) {
		for t := lo; t < hi; t++ {
			y := y[t*width:][:width]
			clear(y)
			for _, r := range rows[t*k:][:k] {
				if r < 0 || int(r) >= in[0].Shape[0] {
					continue
				}
				for i, v := range x[int(r)*width:][:width] {
					y[i] += v
				}
			}
		}
	})
}

func (GatherTokens) Cost(in, out []Type, _ Content) Cost {
	return Cost{Bytes: in[0].Bytes() + in[2].Bytes() + moved(out)}
}

func (SumTokens) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 1) }
