package kernel

import "github.com/tierlora/tierlora/kernel/gemm"

// attentionGrad goes over the tiles of scores once. dq of a tile of queries is its pool; dk and dv are sums
// over such tiles, which are dealt out to a fixed number of strands: each adds up its pool partial sums,
// and these are added in order. So every sum has one order whatever the number of threads. Where there are
// sequences enough, a task is a sequence instead and writes dk and dv itself.
func attentionGrad[F Float](c *CPU, o AttentionGrad, in, out []Tensor) func() {
	return differentiateAttention(c, o, &attentionBackward[F]{
		attentionShape: newAttentionShape[F](Attention(o), in[0], in[1], in[6], in[7]),
		q:              Floats[F](in[0]), k: Floats[F](in[1]), v: Floats[F](in[2]),
		o: Floats[F](in[3]), lse: Floats[F](in[4]), do: Floats[F](in[5]),
		dq: Floats[F](out[0]), dk: Floats[F](out[1]), dv: Floats[F](out[2]),
	}, in[1].Type)
}

// differentiateAttention binds b, which knows what it reads and writes; k is the type of all keys by themselves.
func differentiateAttention[F Float](c *CPU, o AttentionGrad, b *attentionBackward[F], k Type) func() {
	b.strands = o.strands()
	mem, size, bytes := c.Scratch, k.Elems()*b.strands, o.partialBytes(k)
	b.partialK, mem = carve[F](mem, size), mem[bytes:]
	b.partialV, mem = carve[F](mem, size), mem[bytes:]
	b.slots = newSlots[F](mem, c.Workers(), Attention(o).backwardSlot(k.DType, b.head))
	b.stack = b.rows
	b.quicken()
	pool, heads, last := c.Pool, o.KVHeads, b.strands-1
	// Later strands begin with later queries, which see more keys: they go first.
	strand := func(pool *gemm.Pool, i int) { b.strand(pool, last-i/heads, i%heads) }
	whole := func(pool *gemm.Pool, i int) { b.whole(pool, i/heads, i%heads) }
	sum := c.Range(b.keys, rowGrain(b.kvWidth*b.strands), b.sum)
	return func() {
		if b.even(heads) {
			pool.ParallelOn((len(b.cuQ)-1)*heads, whole)
			return
		}
		pool.ParallelOn(b.strands*heads, strand)
		sum()
	}
}

// strands is the number of partial sums of dk and dv: about sixteen tasks with the key heads.
func (o AttentionGrad) strands() int { return max(1, 16/o.KVHeads) }

func (o AttentionGrad) partialBytes(k Type) int64 { return AlignUp(k.Bytes() * int64(o.strands())) }

type attentionBackward[F Float] struct {
	attentionShape[F]
	q, k, v, o, lse, do []F
	dq, dk, dv          []F
	strands             int
	partialK, partialV  []F // [strands,K,N,D]
	slots               *slots[F]
	stack               func(pool *gemm.Pool, t stack, mem, dk, dv []F, stride int)
}

// workspace is a worker's scratch for a stack.
type workspace[F Float] struct {
	q, do, dq []F // [rows,D]; q is scaled
	p, ds     []F // [rows,keyTile]
	delta     []F // [rows], rowsum(do*o)
}

func (b *attentionBackward[F]) workspace(mem []F, rows int) (w workspace[F]) {
	for _, part := range []*[]F{&w.q, &w.do, &w.dq} {
		*part, mem = mem[:rows*b.head], mem[rows*b.head:]
	}
	w.p, mem = mem[:rows*keyTile], mem[rows*keyTile:]
	w.ds, mem = mem[:rows*keyTile], mem[rows*keyTile:]
	w.delta = mem[:rows]
	return w
}

// strand computes every strands-th tile of queries for the query heads of a key head: dq, and a partial
// sum of dk and dv.
func (b *attentionBackward[F]) strand(pool *gemm.Pool, strand, kv int) {
	size := b.keys * b.head
	at := (strand*b.kvWidth + kv*b.head) * b.keys
	dk, dv := b.partialK[at:][:size], b.partialV[at:][:size]
	clear(dk)
	clear(dv)
	slot, mem := b.slots.take()
	for lo := strand * b.tile; lo < b.queries; lo += b.strands * b.tile {
		hi := min(lo+b.tile, b.queries)
		b.clearQueries(kv, lo, hi)
		for s := range len(b.cuQ) - 1 {
			seq := b.sequence(s)
			if q0, q1 := max(lo, seq.q0), min(hi, seq.q1); q0 < q1 {
				b.stack(pool, stack{seq, kv, q0, q1}, mem, dk, dv, b.head)
			}
		}
	}
	b.slots.give(slot)
}

// even tells whether the sequences alone, with the key heads, are tasks enough: none is more than an eighth
// of the work, and they share no row.
func (b *attentionBackward[F]) even(heads int) bool {
	most, all, q, k := 0, 0, int32(0), int32(0)
	for s := range len(b.cuQ) {
		if b.cuQ[s] < q || b.cuK[s] < k {
			return false
		}
		if s > 0 {
			work := int(b.cuQ[s]-q) * int(b.cuK[s]-k)
			most, all = max(most, work), all+work
		}
		q, k = b.cuQ[s], b.cuK[s]
	}
	return int(q) <= b.queries && int(k) <= b.keys && most > 0 && most*8 <= all*heads
}

// clearQueries clears the rows lo..hi of dq for the query heads of a key head.
func (b *attentionBackward[F]) clearQueries(kv, lo, hi int) {
	width := b.group * b.head
	for i := lo; i < hi; i++ {
		clear(b.dq[i*b.queryWidth+kv*width:][:width])
	}
}

// whole computes the gradients of a sequence for a key head and its query heads; those of the rows before
// the first sequence and after the last are zero.
func (b *attentionBackward[F]) whole(pool *gemm.Pool, s, kv int) {
	seq := b.sequence(s)
	q, k := seq, seq
	if s == 0 {
		q.q0, k.k0 = 0, 0
	}
	if s == len(b.cuQ)-2 {
		q.q1, k.k1 = b.queries, b.keys
	}
	b.clearQueries(kv, q.q0, q.q1)
	dk, dv := b.dk[kv*b.head:], b.dv[kv*b.head:]
	for j := k.k0; j < k.k1; j++ {
		clear(dk[j*b.keyWidth:][:b.head])
		clear(dv[j*b.keyWidth:][:b.head])
	}
	slot, mem := b.slots.take()
	for lo := seq.q0; lo < seq.q1; lo += b.tile {
		b.stack(pool, stack{seq, kv, lo, min(lo+b.tile, seq.q1)}, mem, dk, dv, b.keyWidth)
	}
	b.slots.give(slot)
}

// rows computes dq of a stack and adds what it gives to dk and dv, with rows of stride elements.
func (b *attentionBackward[F]) rows(pool *gemm.Pool, t stack, mem, dk, dv []F, stride int) {
	rows := b.group * t.queries()
	w := b.workspace(mem, rows)
	b.gather(w.q, b.q, b.queryWidth, t, rows, b.scale)
	b.gather(w.do, b.do, b.outWidth, t, rows, 1)
	for r := range rows {
		w.delta[r] = b.loops.Dot(w.do[r*b.head:][:b.head], b.o[b.at(t, r, b.outWidth):][:b.head])
	}
	clear(w.dq)
	first, _ := b.sees(t.sequence, t.from)
	_, last := b.sees(t.sequence, t.to-1)
	for k0 := first; k0 < last; k0 += keyTile {
		n, at := min(keyTile, last-k0), k0*b.keyWidth+t.kv*b.head
		b.scores(pool, w.p, w.q, b.k[at:], rows, n)
		b.scores(pool, w.ds, w.do, b.v[at:], rows, n)
		b.probabilities(w, t, rows, k0, n)
		gemm.Gemm(pool, false, false, rows, b.head, n, 1, w.ds, keyTile, b.k[at:], b.keyWidth, 1, w.dq, b.head)
		gemm.Gemm(pool, true, false, n, b.head, rows, 1, w.ds, keyTile, w.q, b.head, 1, dk[k0*stride:], stride)
		gemm.Gemm(pool, true, false, n, b.head, rows, 1, w.p, keyTile, w.do, b.head, 1, dv[k0*stride:], stride)
	}
	for r := range rows {
		b.loops.Scale(b.dq[b.at(t, r, b.queryWidth):][:b.head], w.dq[r*b.head:], b.scale)
	}
}

// probabilities turns scores and do vᵀ of a stack and the n keys from k0 on into p and ds.
func (b *attentionBackward[F]) probabilities(w workspace[F], t stack, rows, k0, n int) {
	for r := range rows {
		p, ds := w.p[r*keyTile:][:n], w.ds[r*keyTile:][:n]
		lo, hi := b.visible(t, r, k0, k0+n)
		clear(p[:lo])
		clear(ds[:lo])
		clear(p[hi:])
		clear(ds[hi:])
		b.capScores(p[lo:hi])
		delta := b.capGrad(p[lo:hi], ds[lo:hi], w.delta[r])
		b.loops.Exp(p[lo:hi], p[lo:hi], b.lse[b.statistic(t, r)])
		b.loops.ScoreGrad(ds[lo:hi], p[lo:hi], ds[lo:hi], delta)
	}
}

// sum adds up the partial sums of rows lo..hi of dk and dv.
func (b *attentionBackward[F]) sum(lo, hi int) {
	for j := lo; j < hi; j++ {
		for h := 0; h < b.kvWidth; h += b.head {
			dk, dv := b.dk[j*b.keyWidth+h:][:b.head], b.dv[j*b.keyWidth+h:][:b.head]
			clear(dk)
			clear(dv)
			for strand := range b.strands {
				at := (strand*b.kvWidth+h)*b.keys + j*b.head
				b.loops.Blend(dk, 1, b.partialK[at:][:b.head], 1)
				b.loops.Blend(dv, 1, b.partialV[at:][:b.head], 1)
			}
		}
	}
}
