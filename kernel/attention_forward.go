package kernel

import "math"

func attention[F Float](c *CPU, o Attention, in, out []Tensor) func() {
	a := newAttentionShape[F](o, in[0], in[1], in[3], in[4])
	f := attentionForward[F]{
		attentionShape: a, q: Floats[F](in[0]), k: Floats[F](in[1]), v: Floats[F](in[2]),
		o: Floats[F](out[0]), lse: Floats[F](out[1]),
		slots: newSlots[F](c.Scratch, c.Workers(), o.slot(in[0].Type, 1, 1)),
	}
	blocks := (a.queries + attentionTile - 1) / attentionTile
	// Late blocks see more keys: they go first, so that no thread ends with one.
	return c.Range(blocks*o.KVHeads, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f.block(blocks-1-i/o.KVHeads, i%o.KVHeads)
		}
	})
}

type attentionForward[F Float] struct {
	attentionShape[F]
	q, k, v, o, lse []F
	slots           *slots[F]
}

// block computes one tile of queries for the query heads of a key head.
func (f *attentionForward[F]) block(block, kv int) {
	lo, hi := block*attentionTile, min((block+1)*attentionTile, f.queries)
	for h := kv * f.group; h < (kv+1)*f.group; h++ {
		for i := lo; i < hi; i++ {
			clear(f.o[i*f.queryWidth+h*f.head:][:f.head])
		}
		clear(f.lse[h*f.queries+lo : h*f.queries+hi])
	}
	slot, mem := f.slots.take()
	defer f.slots.give(slot)
	for s := range len(f.cuQ) - 1 {
		seq := f.sequence(s)
		if q0, q1 := max(lo, seq.q0), min(hi, seq.q1); q0 < q1 {
			f.rows(seq, q0, q1, kv, mem)
		}
	}
}

// rows computes queries q0..q1 of a sequence, tile of keys by tile of keys. The output holds the sums of
// exponentials times values so far; scratch holds every row's maximum and sum of exponentials.
func (f *attentionForward[F]) rows(seq sequence, q0, q1, kv int, mem []F) {
	keys, mem := mem[:f.head*attentionTile], mem[f.head*attentionTile:]
	scores, mem := mem[:attentionTile*attentionTile], mem[attentionTile*attentionTile:]
	top, sum := mem[:f.group*attentionTile], mem[f.group*attentionTile:][:f.group*attentionTile]
	for i := range top {
		top[i], sum[i] = F(math.Inf(-1)), 0
	}
	first, _ := f.sees(seq, q0)
	_, last := f.sees(seq, q1-1)
	for k0 := first; k0 < last; k0 += attentionTile {
		k1 := min(k0+attentionTile, last)
		f.transpose(keys, f.k[k0*f.keyWidth+kv*f.head:], f.keyWidth, k1-k0)
		v := matrix[F]{f.v[k0*f.keyWidth+kv*f.head:], f.keyWidth, 1}
		for g := range f.group {
			at := q0*f.queryWidth + (kv*f.group+g)*f.head
			f.product(scores, f.q[at:], f.queryWidth, keys, q1-q0, k1-k0)
			o, top, sum := f.o[at:], top[g*attentionTile:], sum[g*attentionTile:]
			for i := range q1 - q0 {
				lo, hi := f.sees(seq, q0+i)
				f.softmax(scores[i*attentionTile:][:k1-k0], lo-k0, hi-k0, &top[i], &sum[i], o[i*f.queryWidth:][:f.head])
			}
			f.lanes.tile(o, f.queryWidth, matrix[F]{scores, attentionTile, 1}, v, q1-q0, f.head, k1-k0)
		}
	}
	for g := range f.group {
		h := kv*f.group + g
		for i := range q1 - q0 {
			if sum := sum[g*attentionTile+i]; sum != 0 {
				o := f.o[(q0+i)*f.queryWidth+h*f.head:][:f.head]
				f.lanes.blend(o, 1/sum, o, 0)
				f.lse[h*f.queries+q0+i] = top[g*attentionTile+i] + F(math.Log(float64(sum)))
			}
		}
	}
}

// softmax turns a row of scores into exponentials over lo..hi and zeros elsewhere, and rescales what has
// been summed so far when the row's maximum rises.
func (f *attentionForward[F]) softmax(row []F, lo, hi int, top, sum *F, o []F) {
	lo, hi = min(max(lo, 0), len(row)), min(max(hi, 0), len(row))
	if lo >= hi {
		clear(row)
		return
	}
	clear(row[:lo])
	clear(row[hi:])
	if m := f.scale * f.lanes.max(row[lo:hi]); !(m <= *top) {
		if *sum != 0 {
			s := F(math.Exp(float64(*top - m)))
			*sum *= s
			f.lanes.blend(o, s, o, 0)
		}
		*top = m
	}
	*sum += f.lanes.exp(row[lo:hi], row[lo:hi], f.scale, *top)
}
