package kernel

import "fmt"

// GatedDeltaCached is GatedDelta of the next tokens of several sequences, each with the state behind its earlier tokens in a slot.
//
//	the inputs of GatedDelta, cuK i32[S+1], state f[P,V*D*E] -> o f[M,V*E], state'
//
// Slots and sequences are as in CausalConvCached.
type GatedDeltaCached struct {
	Rule   GatedDelta
	Tokens int // of a slot's sequence at most
}

func (GatedDeltaCached) Name() string { return "gated_delta_cached" }

func (o GatedDeltaCached) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "f[M,V]", "f[M,V]", "w[V]", "w[V]", "i32[S]", "i32[S]", "f[P,L]")
	if err != nil {
		return nil, err
	}
	size, err := o.Rule.check(in, d, 0, 1, 2, 7)
	if err != nil {
		return nil, err
	}
	if want := o.Rule.ValueHeads * o.Rule.KeySize * size; d.At('L') != want {
		return nil, fmt.Errorf("input 7 is %v, want %d columns: %d matrices of %d rows and %d columns", in[7], want, o.Rule.ValueHeads, o.Rule.KeySize, size)
	}
	if o.Tokens < 1 {
		return nil, fmt.Errorf("attribute Tokens is %d, want at least 1", o.Tokens)
	}
	return []Type{T(in[0].DType, d.At('M'), o.Rule.ValueHeads*size), in[7]}, nil
}

func (o GatedDeltaCached) Scratch(in []Type, workers int) int64 { return o.Rule.Scratch(in, workers) }

func (GatedDeltaCached) Overwrites() []Alias { return []Alias{{1, 7}} }

func (o GatedDeltaCached) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], gatedDeltaCached[float32], gatedDeltaCached[float64])(c, o, in, out)
}

func gatedDeltaCached[F Float](c *CPU, o GatedDeltaCached, in, out []Tensor) func() {
	h, load := newDeltaHeads[F](o.Rule, in)
	y, state, cuK, places, size := Floats[F](out[0]), Floats[F](out[1]), in[6].I32(), in[7].Shape[0], o.Rule.KeySize*h.E
	slots := newSlots[F](c.Scratch, c.Workers(), o.Rule.forwardSlot(in[0].Type))
	task := func(i int) {
		s, key := i/o.Rule.KeyHeads, i%o.Rule.KeyHeads
		first, end, place := int(h.cu[s]), min(int(h.cu[s+1]), h.rows), int(cuK[s])/o.Tokens
		if first >= end || place >= places {
			return
		}
		slot, mem := slots.take()
		of := func(value int) []F { return state[(place*o.Rule.ValueHeads+value)*size:][:size] }
		h.forward(y, mem, first, end, key, func(value int, s []F) {
			if clear(s); int(cuK[i/o.Rule.KeyHeads+1]-cuK[i/o.Rule.KeyHeads]) > end-first {
				copy(s, of(value))
			}
		}, func(value int, s []F) { copy(of(value), s) })
		slots.give(slot)
	}
	pool, tasks := c.Pool, (len(h.cu)-1)*o.Rule.KeyHeads
	return after(load, func() {
		h.clearRest(y)
		pool.Parallel(tasks, task)
	})
}

// Cost is of the rows alone, and of one state.
func (o GatedDeltaCached) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in[:7], out[:1]), o.Rule.flops(in[0], 4)}
}
