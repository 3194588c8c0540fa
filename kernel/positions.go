package kernel

// PositionsByLength moves the positions of long sequences behind those of short ones: a table of rotary angles may then
// have rows for both (LongRoPE: Ding et al., 2024).
//
//	positions i32[M], cu i32[S+1] -> i32[M] = positions + (Offset in sequences of more than Limit tokens)
//
// Sequence s is the tokens cu[s]..cu[s+1]; a token in no sequence keeps its position. With Ranks, cu counts the tokens of all
// ranks, in their order, of which this one has M.
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
