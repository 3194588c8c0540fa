package kernel

// attentionGrad runs twice over the tiles of scores, which it computes again each time: by rows for dq,
// then by columns for dk and dv. That costs two products in seven, needs no buffer of partial sums, and
// every sum has one order.
func attentionGrad[F Float](c *CPU, o AttentionGrad, in, out []Tensor) func() {
	a := newAttentionShape[F](Attention(o), in[0], in[1], in[6], in[7])
	deltas := AlignUp(in[4].Type.Bytes())
	b := attentionBackward[F]{
		attentionShape: a, q: Floats[F](in[0]), k: Floats[F](in[1]), v: Floats[F](in[2]),
		o: Floats[F](in[3]), lse: Floats[F](in[4]), do: Floats[F](in[5]),
		dq: Floats[F](out[0]), dk: Floats[F](out[1]), dv: Floats[F](out[2]),
		delta: carve[F](c.Scratch, o.Heads*a.queries),
		slots: newSlots[F](c.Scratch[deltas:], c.Workers(), Attention(o).slot(in[0].Type, 2, 2)),
	}
	queryBlocks := (a.queries + attentionTile - 1) / attentionTile
	keyBlocks := (a.keys + attentionTile - 1) / attentionTile
	// The largest blocks go first: late queries see more keys, early keys are seen by more queries.
	byQueries := c.Range(queryBlocks*o.KVHeads, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			b.queryBlock(queryBlocks-1-i/o.KVHeads, i%o.KVHeads)
		}
	})
	byKeys := c.Range(keyBlocks*o.KVHeads, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			b.keyBlock(i/o.KVHeads, i%o.KVHeads)
		}
	})
	return func() { byQueries(); byKeys() }
}

type attentionBackward[F Float] struct {
	attentionShape[F]
	q, k, v, o, lse, do []F
	dq, dk, dv          []F
	delta               []F // [H,M], rowsum(do*o)
	slots               *slots[F]
}

// workspace is a worker's scratch: keys and values as columns, probabilities and score gradients.
type workspace[F Float] struct{ keys, values, p, ds []F }

func (b *attentionBackward[F]) workspace(mem []F) workspace[F] {
	packed, square := b.head*attentionTile, attentionTile*attentionTile
	return workspace[F]{mem[:packed], mem[packed:][:packed], mem[2*packed:][:square], mem[2*packed+square:][:square]}
}

func (b *attentionBackward[F]) pack(w workspace[F], k0, k1, kv int) {
	at := k0*b.keyWidth + kv*b.head
	b.transpose(w.keys, b.k[at:], b.keyWidth, k1-k0)
	b.transpose(w.values, b.v[at:], b.keyWidth, k1-k0)
}

// scores fills p and ds for queries q0..q1 of head h and the packed keys k0..k1.
func (b *attentionBackward[F]) scores(w workspace[F], seq sequence, h, q0, q1, k0, k1 int) {
	at := q0*b.queryWidth + h*b.head
	b.product(w.p, b.q[at:], b.queryWidth, w.keys, q1-q0, k1-k0)
	b.product(w.ds, b.do[at:], b.queryWidth, w.values, q1-q0, k1-k0)
	for i := range q1 - q0 {
		p, ds := w.p[i*attentionTile:][:k1-k0], w.ds[i*attentionTile:][:k1-k0]
		lo, hi := b.sees(seq, q0+i)
		lo, hi = min(max(lo-k0, 0), len(p)), min(max(hi-k0, 0), len(p))
		clear(p[:lo])
		clear(ds[:lo])
		clear(p[hi:])
		clear(ds[hi:])
		row := h*b.queries + q0 + i
		b.lanes.exp(p[lo:hi], p[lo:hi], b.scale, b.lse[row])
		b.lanes.scoreGrad(ds[lo:hi], p[lo:hi], ds[lo:hi], b.delta[row], b.scale)
	}
}

// queryBlock computes delta and dq of one tile of queries for the query heads of a key head.
func (b *attentionBackward[F]) queryBlock(block, kv int) {
	lo, hi := block*attentionTile, min((block+1)*attentionTile, b.queries)
	for h := kv * b.group; h < (kv+1)*b.group; h++ {
		for i := lo; i < hi; i++ {
			at := i*b.queryWidth + h*b.head
			b.delta[h*b.queries+i] = b.lanes.dot(b.do[at:][:b.head], b.o[at:][:b.head])
			clear(b.dq[at:][:b.head])
		}
	}
	slot, mem := b.slots.take()
	w := b.workspace(mem)
	for s := range len(b.cuQ) - 1 {
		seq := b.sequence(s)
		q0, q1 := max(lo, seq.q0), min(hi, seq.q1)
		if q0 >= q1 {
			continue
		}
		first, _ := b.sees(seq, q0)
		_, last := b.sees(seq, q1-1)
		for k0 := first; k0 < last; k0 += attentionTile {
			k1 := min(k0+attentionTile, last)
			b.pack(w, k0, k1, kv)
			k := matrix[F]{b.k[k0*b.keyWidth+kv*b.head:], b.keyWidth, 1}
			for h := kv * b.group; h < (kv+1)*b.group; h++ {
				b.scores(w, seq, h, q0, q1, k0, k1)
				dq := b.dq[q0*b.queryWidth+h*b.head:]
				b.lanes.tile(dq, b.queryWidth, matrix[F]{w.ds, attentionTile, 1}, k, q1-q0, b.head, k1-k0)
			}
		}
	}
	b.slots.give(slot)
}

// keyBlock computes dk and dv of one tile of keys for one key head.
func (b *attentionBackward[F]) keyBlock(block, kv int) {
	lo, hi := block*attentionTile, min((block+1)*attentionTile, b.keys)
	for j := lo; j < hi; j++ {
		at := j*b.keyWidth + kv*b.head
		clear(b.dk[at:][:b.head])
		clear(b.dv[at:][:b.head])
	}
	slot, mem := b.slots.take()
	w := b.workspace(mem)
	for s := range len(b.cuQ) - 1 {
		seq := b.sequence(s)
		k0, k1 := max(lo, seq.k0), min(hi, seq.k1)
		if k0 >= k1 {
			continue
		}
		b.pack(w, k0, k1, kv)
		first, last := b.seenBy(seq, k0, k1)
		at := k0*b.keyWidth + kv*b.head
		for h := kv * b.group; h < (kv+1)*b.group; h++ {
			for q0 := first; q0 < last; q0 += attentionTile {
				q1 := min(q0+attentionTile, last)
				b.scores(w, seq, h, q0, q1, k0, k1)
				q := matrix[F]{b.q[q0*b.queryWidth+h*b.head:], b.queryWidth, 1}
				do := matrix[F]{b.do[q0*b.queryWidth+h*b.head:], b.queryWidth, 1}
				b.lanes.tile(b.dk[at:], b.keyWidth, matrix[F]{w.ds, 1, attentionTile}, q, k1-k0, b.head, q1-q0)
				b.lanes.tile(b.dv[at:], b.keyWidth, matrix[F]{w.p, 1, attentionTile}, do, k1-k0, b.head, q1-q0)
			}
		}
	}
	b.slots.give(slot)
}
