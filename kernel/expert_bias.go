package kernel

import "fmt"

// ExpertBias adds each expert's bias to its rows, which are sorted by expert.
//
//	x f[S,N], b w[E*N], starts i32[E+1] -> y f[S,N];  y[r] = x[r] + b_e, starts[e] <= r < starts[e+1]; x[r] where r is with no expert
//
// The biases are frozen.
type ExpertBias struct{ Experts int }

func (ExpertBias) Name() string { return "expert_bias" }

func (o ExpertBias) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,N]", "w[B]", "i32[P]")
	if err != nil {
		return nil, err
	}
	if err := (ExpertMatMul{Experts: o.Experts}).checkStarts(in[2], d.At('P')); err != nil {
		return nil, err
	}
	if d.At('B') != o.Experts*d.At('N') {
		return nil, fmt.Errorf("input 1 is %v, want %d numbers for each of %d experts", in[1], d.At('N'), o.Experts)
	}
	return []Type{in[0]}, nil
}

func (ExpertBias) Grads() Backward { return Backward{Grads: []Ref{Upstream(), {}, {}}} }

func (ExpertBias) InPlace() []Alias { return []Alias{{0, 0}} }

func (o ExpertBias) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], expertBias[float32], expertBias[float64])(c, in, out)
}

func expertBias[F Float](c *CPU, in, out []Tensor) func() {
	x, starts, y, width := Floats[F](in[0]), in[2].I32(), Floats[F](out[0]), in[0].Shape[1]
	bias, load := frozenRow[F](in[1])
	rest := func() {
		from := int(starts[len(starts)-1]) * width
		copy(y[from:], x[from:])
	}
	return after(load, after(rest, c.Range(len(starts)-1, 1, func(lo, hi int) {
		for e := lo; e < hi; e++ {
			b := bias[e*width:][:width]
			for r := int(starts[e]); r < int(starts[e+1]); r++ {
				x, y := x[r*width:][:width], y[r*width:][:width]
				for i, v := range b {
					y[i] = x[i] + v
				}
			}
		}
	})))
}

func (ExpertBias) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }
