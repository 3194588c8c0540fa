package kernel

import (
	"errors"
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
// R elements of each from From on; the others, and the Rest heads that end a row, stay as they are. Inverse rotates
// back.
// A row whose position is outside the table becomes NaN: the caller checks positions.
type RoPE struct {
	Heads   int // H, rotated
	Rest    int // heads of a row that are not: the values of a fused projection
	HeadDim int // D; 0 = R
	From    int // the first rotated element of a head
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
	if o.From < 0 || head < o.From+turned {
		return nil, fmt.Errorf("input 1 is %v: from element %d on it rotates more than a head of %d elements", in[1],
			o.From, head)
	}
	if o.Heads <= 0 || o.Rest < 0 || (o.Heads+o.Rest)*head != width {
		return nil, fmt.Errorf("input 0 is %v, want %d heads of %d elements", in[0], o.Heads+o.Rest, head)
	}
	return []Type{in[0]}, nil
}

// head returns the size of a head.
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
			for h := o.From; h < heads; h += head {
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
	return Cost{in[0].Bytes() + table.Bytes() + in[2].Bytes() + moved(out),
		3 * int64(rows) * int64(o.Heads) * int64(in[1].Shape[1])}
}

func (RoPE) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, I32}, []DType{ComputeType}
}

// CheckGPU refuses rotations that begin where no vector of 8 elements begins.
func (o RoPE) CheckGPU([]Type, []Type, int) error {
	if o.From%8 != 0 {
		return fmt.Errorf("%d columns of a head lie before the rotated ones; on a GPU a multiple of 8 must", o.From)
	}
	return nil
}

// RoPEAppend rotates queries and keys and writes keys and values into their caches in place, for plans of a GPU: RoPE
// twice and KVAppend twice.
//
//	q f[M,Q], k f[M,K], v f[M,V], table f[P,R], positions i32[M], key cache f[N,K], value cache f[N,V], at i32[M]
//	  -> q', key cache', value cache'
type RoPEAppend struct {
	Heads, KVHeads int
	HeadDim        int // as in RoPE
}

func (RoPEAppend) Name() string { return "rope_append" }

// parts returns the rotations.
func (o RoPEAppend) parts() (q, k RoPE) {
	return RoPE{Heads: o.Heads, HeadDim: o.HeadDim}, RoPE{Heads: o.KVHeads, HeadDim: o.HeadDim}
}

func (o RoPEAppend) Shape(in []Type) ([]Type, error) {
	if len(in) != 8 {
		return nil, fmt.Errorf("takes 8 inputs, got %d", len(in))
	}
	q, k := o.parts()
	query, err := q.Shape([]Type{in[0], in[3], in[4]})
	if err != nil {
		return nil, fmt.Errorf("queries: %w", err)
	}
	key, err := k.Shape([]Type{in[1], in[3], in[4]})
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	keys, err := KVAppend{}.Shape([]Type{in[5], key[0], in[7]})
	if err != nil {
		return nil, fmt.Errorf("cache of keys: %w", err)
	}
	values, err := KVAppend{}.Shape([]Type{in[6], in[2], in[7]})
	if err != nil {
		return nil, fmt.Errorf("cache of values: %w", err)
	}
	if in[0].Shape[0] != in[1].Shape[0] || in[5].Shape[0] != in[6].Shape[0] {
		return nil, errors.New("queries and keys, or their caches, differ in rows")
	}
	return []Type{query[0], keys[0], values[0]}, nil
}

func (RoPEAppend) Overwrites() []Alias { return []Alias{{0, 0}, {1, 5}, {2, 6}} }

// Scratch holds the rotated keys.
func (RoPEAppend) Scratch(in []Type, _ int) int64 { return in[1].Bytes() }

func (o RoPEAppend) CPU(c *CPU, in, out []Tensor) func() {
	q, k := o.parts()
	key := NewTensor(in[1].Type, c.Scratch)
	work := []func(){
		q.CPU(c, []Tensor{in[0], in[3], in[4]}, out[:1]),
		k.CPU(c, []Tensor{in[1], in[3], in[4]}, []Tensor{key}),
		KVAppend{}.CPU(c, []Tensor{in[5], key, in[7]}, out[1:2]),
		KVAppend{}.CPU(c, []Tensor{in[6], in[2], in[7]}, out[2:]),
	}
	return func() {
		for _, w := range work {
			w()
		}
	}
}

// Cost counts the rows alone: the rest of the caches stays.
func (o RoPEAppend) Cost(in, out []Type, c Content) Cost {
	q, k := o.parts()
	turned, kept := q.Cost([]Type{in[0], in[3], in[4]}, out[:1], c), k.Cost([]Type{in[1], in[3], in[4]}, in[1:2], c)
	return Cost{turned.Bytes + kept.Bytes + 2*in[2].Bytes() + in[7].Bytes(), turned.FLOPs + kept.FLOPs}
}

// Stored keeps the caches in the type that attention reads.
func (RoPEAppend) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, I32, ComputeType, ComputeType, I32},
		[]DType{ComputeType, ComputeType, ComputeType}
}

// ScratchGPU returns zero: the device rotates keys on their way to the cache.
func (RoPEAppend) ScratchGPU([]Type, []Type, int) int64 { return 0 }

// PositionsByLength moves the positions of long sequences behind those of short ones: a table of rotary angles may then
// have rows for both (LongRoPE: Ding et al., 2024).
//
//	positions i32[M], cu i32[S+1] -> i32[M] = positions + (Offset in sequences of more than Limit tokens)
//
// Sequence s is the tokens cu[s]..cu[s+1]; a token in no sequence keeps its position. With Ranks, cu counts the tokens
// of all ranks, in their order, of which this one has M.
type PositionsByLength struct {
	Limit, Offset int
	Ranks         int // that have a share of the tokens each, all as many; 0 = this one has all
}

func (PositionsByLength) Name() string { return "positions" }

func (PositionsByLength) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "i32[M]", "i32[S]"); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (o PositionsByLength) CPU(c *CPU, in, out []Tensor) func() {
	positions, cu, moved := in[0].I32(), in[1].I32(), out[0].I32()
	first := c.share(o.Ranks) * len(moved)
	return func() {
		copy(moved, positions)
		for s := 1; s < len(cu); s++ {
			from, to := int(cu[s-1])-first, int(cu[s])-first
			if to-from <= o.Limit {
				continue
			}
			for i := max(from, 0); i < min(to, len(moved)); i++ {
				moved[i] = positions[i] + int32(o.Offset)
			}
		}
	}
}

func (PositionsByLength) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

func (PositionsByLength) Stored([]DType) (want, out []DType) {
	return []DType{I32, I32}, []DType{I32}
}
