package kernel

import "github.com/tierlora/tierlora/kernel/gemm"

// attentionGrad runs twice over the tiles of scores, which it computes again each time: by queries for dq,
// then by keys for dk and dv. That costs two products in seven, needs no buffer of partial sums, and every
// sum has one order.
func attentionGrad[F Float](c *CPU, o AttentionGrad, in, out []Tensor) func() {
	b := &attentionBackward[F]{
		attentionShape: newAttentionShape[F](Attention(o), in[0], in[1], in[6], in[7]),
		q:              Floats[F](in[0]), k: Floats[F](in[1]), v: Floats[F](in[2]),
		o: Floats[F](in[3]), lse: Floats[F](in[4]), do: Floats[F](in[5]),
		dq: Floats[F](out[0]), dk: Floats[F](out[1]), dv: Floats[F](out[2]),
		delta: carve[F](c.Scratch, in[4].Elems()),
		slots: newSlots[F](c.Scratch[AlignUp(in[4].Type.Bytes()):], c.Workers(), Attention(o).backwardSlot(in[0].Type)),
	}
	pool, heads := c.Pool, o.KVHeads
	queryBlocks, keyBlocks := (b.queries+b.tile-1)/b.tile, (b.keys+keyTile-1)/keyTile
	// The largest blocks go first: late queries see more keys, early keys are seen by more queries.
	byQueries := func(own *gemm.Pool, i int) { b.queryBlock(own, queryBlocks-1-i/heads, i%heads) }
	byKeys := func(own *gemm.Pool, i int) { b.keyBlock(own, i/heads, i%heads) }
	return func() {
		pool.ParallelOn(queryBlocks*heads, byQueries)
		pool.ParallelOn(keyBlocks*heads, byKeys)
	}
}

type attentionBackward[F Float] struct {
	attentionShape[F]
	q, k, v, o, lse, do []F
	dq, dk, dv          []F
	delta               []F // [H,M], rowsum(do*o)
	slots               *slots[F]
}

// workspace is a worker's scratch for a stack.
type workspace[F Float] struct {
	q, do, dq []F // [rows,D]; q is scaled
	p, ds     []F // [rows,keyTile]
}

func (b *attentionBackward[F]) workspace(mem []F, rows int) (w workspace[F]) {
	for _, part := range []*[]F{&w.q, &w.do, &w.dq} {
		*part, mem = mem[:rows*b.head], mem[rows*b.head:]
	}
	w.p, w.ds = mem[:rows*keyTile], mem[rows*keyTile:][:rows*keyTile]
	return w
}

// probabilities fills p and ds for a stack and the n keys from k0 on.
func (b *attentionBackward[F]) probabilities(own *gemm.Pool, w workspace[F], t stack, k0, n int) {
	rows, at := b.group*t.queries(), k0*b.keyWidth+t.kv*b.head
	b.scores(own, w.p, w.q, b.k[at:], rows, n)
	b.scores(own, w.ds, w.do, b.v[at:], rows, n)
	for r := range rows {
		p, ds, row := w.p[r*keyTile:][:n], w.ds[r*keyTile:][:n], b.statistic(t, r)
		lo, hi := b.visible(t, r, k0, k0+n)
		clear(p[:lo])
		clear(ds[:lo])
		clear(p[hi:])
		clear(ds[hi:])
		b.lanes.exp(p[lo:hi], p[lo:hi], b.lse[row])
		b.lanes.scoreGrad(ds[lo:hi], p[lo:hi], ds[lo:hi], b.delta[row])
	}
}

// queryBlock computes delta and dq of one tile of queries for the query heads of a key head.
func (b *attentionBackward[F]) queryBlock(own *gemm.Pool, block, kv int) {
	lo, hi := block*b.tile, min((block+1)*b.tile, b.queries)
	all := stack{kv: kv, from: lo, to: hi}
	for r := range b.group * (hi - lo) {
		at := b.at(all, r)
		b.delta[b.statistic(all, r)] = b.lanes.dot(b.do[at:][:b.head], b.o[at:][:b.head])
		clear(b.dq[at:][:b.head])
	}
	slot, mem := b.slots.take()
	for s := range len(b.cuQ) - 1 {
		seq := b.sequence(s)
		q0, q1 := max(lo, seq.q0), min(hi, seq.q1)
		if q0 >= q1 {
			continue
		}
		t := stack{seq, kv, q0, q1}
		rows := b.group * t.queries()
		w := b.workspace(mem, rows)
		b.gather(w.q, b.q, t, rows, b.scale)
		b.gather(w.do, b.do, t, rows, 1)
		clear(w.dq)
		first, _ := b.sees(seq, q0)
		_, last := b.sees(seq, q1-1)
		for k0 := first; k0 < last; k0 += keyTile {
			n := min(keyTile, last-k0)
			b.probabilities(own, w, t, k0, n)
			gemm.Gemm(own, false, false, rows, b.head, n, 1, w.ds, keyTile, b.k[k0*b.keyWidth+kv*b.head:], b.keyWidth, 1, w.dq, b.head)
		}
		for r := range rows {
			b.lanes.scale(b.dq[b.at(t, r):][:b.head], w.dq[r*b.head:], b.scale)
		}
	}
	b.slots.give(slot)
}

// keyBlock computes dk and dv of one tile of keys for one key head.
func (b *attentionBackward[F]) keyBlock(own *gemm.Pool, block, kv int) {
	lo, hi := block*keyTile, min((block+1)*keyTile, b.keys)
	for j := lo; j < hi; j++ {
		at := j*b.keyWidth + kv*b.head
		clear(b.dk[at:][:b.head])
		clear(b.dv[at:][:b.head])
	}
	slot, mem := b.slots.take()
	for s := range len(b.cuQ) - 1 {
		seq := b.sequence(s)
		k0, k1 := max(lo, seq.k0), min(hi, seq.k1)
		if k0 >= k1 {
			continue
		}
		at, n := k0*b.keyWidth+kv*b.head, k1-k0
		first, last := b.seenBy(seq, k0, k1)
		for q0 := first; q0 < last; q0 += b.tile {
			t := stack{seq, kv, q0, min(q0+b.tile, last)}
			rows := b.group * t.queries()
			w := b.workspace(mem, rows)
			b.gather(w.q, b.q, t, rows, b.scale)
			b.gather(w.do, b.do, t, rows, 1)
			b.probabilities(own, w, t, k0, n)
			gemm.Gemm(own, true, false, n, b.head, rows, 1, w.ds, keyTile, w.q, b.head, 1, b.dk[at:], b.keyWidth)
			gemm.Gemm(own, true, false, n, b.head, rows, 1, w.p, keyTile, w.do, b.head, 1, b.dv[at:], b.keyWidth)
		}
	}
	b.slots.give(slot)
}
