package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// RoPE rotates pairs of elements of every head by an angle that grows with the position
// (Su et al., "RoFormer", 2021), in the convention of transformers' rotate_half: element i < D/2 pairs
// with element i+D/2; interleaved, as that paper has it, element 2i with element 2i+1.
//
//	x f[M,(H+Rest)*D], table f[P,R], positions i32[M] -> y f[M,(H+Rest)*D]
//	y[i] = x[i]*cos - x[i+R/2]*sin,  y[i+R/2] = x[i+R/2]*cos + x[i]*sin,  i < R/2, in the first H heads
//	y[2i] = x[2i]*cos - x[2i+1]*sin,  y[2i+1] = x[2i+1]*cos + x[2i]*sin,  interleaved
//
// Row p of the table holds the R/2 cosines of position p, then the R/2 sines. A table narrower than the heads rotates
// the first R elements of each; the others, and the Rest heads that end a row, stay as they are. Inverse rotates back.
// A row whose position is outside the table becomes NaN: the caller checks positions.
type RoPE struct {
	Heads   int // H, rotated
	Rest    int // heads of a row that are not: the values of a fused projection
	HeadDim int // D; 0 = R
	Inverse bool
	// Interleaved pairs are neighbours.
	Interleaved bool
}

// CheapAfter: of an input that is recomputed anyway, as a norm's is, its output costs less to recompute than to keep.
func (RoPE) CheapAfter() {}

func (RoPE) Name() string { return "rope" }

func (o RoPE) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[P,R]", "i32[M]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	width, turned := d.At('C'), d.At('R')
	if turned == 0 || turned%2 != 0 {
		return nil, fmt.Errorf("input 1 is %v: the size that is rotated must be even", in[1])
	}
	head := o.head(in[1])
	if head < turned {
		return nil, fmt.Errorf("input 1 is %v: it rotates more than a head of %d elements", in[1], head)
	}
	if o.Heads <= 0 || o.Rest < 0 || (o.Heads+o.Rest)*head != width {
		return nil, fmt.Errorf("input 0 is %v, want %d heads of %d elements", in[0], o.Heads+o.Rest, head)
	}
	return []Type{in[0]}, nil
}

// head is the size of a head.
func (o RoPE) head(table Type) int {
	if o.HeadDim == 0 {
		return table.Shape[1]
	}
	return o.HeadDim
}

func (o RoPE) Grads() Backward {
	back := o
	back.Inverse = !o.Inverse
	return Backward{
		Calls: []Call{{back, []Ref{Upstream(), In(1), In(2)}}},
		Grads: []Ref{FromCall(0, 0), {}, {}},
	}
}

func (RoPE) InPlace() []Alias { return []Alias{{0, 0}} }

func (o RoPE) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], rope[float32], rope[float64])(c, o, in, out)
}

func rope[F Float](c *CPU, o RoPE, in, out []Tensor) func() {
	x, table, positions, y := Floats[F](in[0]), Floats[F](in[1]), in[2].I32(), Floats[F](out[0])
	width, limit, turned, head := in[0].Shape[1], in[1].Shape[0], in[1].Shape[1], o.head(in[1].Type)
	heads, whole := o.Heads*head, o.Rest == 0 && head == turned
	half, rotate, eights := turned/2, simd.Best[F]().Rotate, simd.Best[F]().RotateEights
	if half < 8 {
		rotate = simd.Rotate[F] // less than a vector
	}
	sign, nan := F(1), F(math.NaN())
	if o.Inverse {
		sign = -1
	}
	return c.Range(len(positions), rowGrain(width), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			x, y, p := x[i*width:][:width], y[i*width:][:width], int(positions[i])
			if p < 0 || p >= limit {
				for j := range y {
					y[j] = nan
				}
				continue
			}
			cos, sin := table[p*turned:][:half], table[p*turned+half:][:half]
			if whole && head == 8 && !o.Interleaved {
				eights(y, x, cos, sin, sign)
				continue
			}
			if !whole {
				copy(y, x)
			}
			for h := 0; h < heads; h += head {
				if o.Interleaved {
					neighbours(y[h:][:turned], x[h:], cos, sin, sign)
					continue
				}
				rotate(y[h:][:half], y[h+half:][:half], x[h:][:half], x[h+half:], cos, sin, sign)
			}
		}
	})
}

// neighbours rotates elements 2i and 2i+1 of x into y, which may be x.
func neighbours[F Float](y, x, cos, sin []F, sign F) {
	x, sin = x[:len(y)], sin[:len(cos)]
	for i, c := range cos {
		a, b, s := x[2*i], x[2*i+1], sign*sin[i]
		y[2*i], y[2*i+1] = F(a*c)-F(b*s), F(b*c)+F(a*s)
	}
}

// Cost reads a row of the table for a row, or the table once where it has fewer.
func (o RoPE) Cost(in, out []Type, _ Content) Cost {
	rows, table := in[0].Shape[0], in[1]
	table.Shape = []int{min(rows, table.Shape[0]), table.Shape[1]}
	return Cost{in[0].Bytes() + table.Bytes() + in[2].Bytes() + moved(out), 3 * int64(rows) * int64(o.Heads) * int64(in[1].Shape[1])}
}

func (RoPE) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, I32}, []DType{ComputeType}
}
