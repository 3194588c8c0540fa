package kernel

import (
	"math"

	"github.com/tierlora/tierlora/kernel/gemm"
)

func attention[F Float](c *CPU, o Attention, in, out []Tensor) func() {
	return attend(c, o, newAttentionShape[F](o, in[0], in[1], in[3], in[4]), Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2]), out)
}

// attend is attention of q, k and v where they lie.
func attend[F Float](c *CPU, o Attention, shape attentionShape[F], q, k, v []F, out []Tensor) func() {
	f := &attentionForward[F]{
		attentionShape: shape, q: q, k: k, v: v,
		o: Floats[F](out[0]), lse: Floats[F](out[1]),
		slots: newSlots[F](c.Scratch, c.Workers(), o.forwardSlot(out[0].DType, shape.head)),
	}
	f.stack = f.rows
	f.quicken()
	pool, heads, blocks := c.Pool, o.KVHeads, (f.queries+f.tile-1)/f.tile
	// Late blocks see more keys: they go first, so that no thread ends with one.
	block := func(pool *gemm.Pool, i int) { f.block(pool, blocks-1-i/heads, i%heads) }
	return func() { pool.ParallelOn(blocks*heads, block) }
}

type attentionForward[F Float] struct {
	attentionShape[F]
	q, k, v, o, lse []F
	slots           *slots[F]
	stack           func(pool *gemm.Pool, t stack, mem []F) // computes a stack
}

// block computes one tile of queries for the query heads of a key head.
func (f *attentionForward[F]) block(pool *gemm.Pool, block, kv int) {
	lo, hi := block*f.tile, min((block+1)*f.tile, f.queries)
	width := f.group * f.head
	for i := lo; i < hi; i++ {
		clear(f.o[i*f.outWidth+kv*width:][:width])
	}
	for h := kv * f.group; h < (kv+1)*f.group; h++ {
		clear(f.lse[h*f.queries+lo : h*f.queries+hi])
	}
	slot, mem := f.slots.take()
	for s := range len(f.cuQ) - 1 {
		seq := f.sequence(s)
		if q0, q1 := max(lo, seq.q0), min(hi, seq.q1); q0 < q1 {
			f.stack(pool, stack{seq, kv, q0, q1}, mem)
		}
	}
	f.slots.give(slot)
}

// rows computes a stack, tile of keys by tile of keys. o holds the sums of exponentials times values so far,
// top and sum every row's largest score and sum of exponentials.
func (f *attentionForward[F]) rows(pool *gemm.Pool, t stack, mem []F) {
	rows := f.group * t.queries()
	q, mem := mem[:rows*f.head], mem[rows*f.head:]
	o, mem := mem[:rows*f.head], mem[rows*f.head:]
	p, mem := mem[:rows*keyTile], mem[rows*keyTile:]
	top, sum := mem[:rows], mem[rows:][:rows]
	f.gather(q, f.q, f.queryWidth, t, rows, f.scale)
	clear(o)
	clear(sum)
	for i := range top {
		top[i] = F(math.Inf(-1))
	}
	first, _ := f.sees(t.sequence, t.from)
	_, last := f.sees(t.sequence, t.to-1)
	for k0 := first; k0 < last; k0 += keyTile {
		n, at := min(keyTile, last-k0), k0*f.keyWidth+t.kv*f.head
		f.scores(pool, p, q, f.k[at:], rows, n)
		for r := range rows {
			lo, hi := f.visible(t, r, k0, k0+n)
			f.capScores(p[r*keyTile:][lo:hi])
			f.softmax(p[r*keyTile:][:n], lo, hi, &top[r], &sum[r], o[r*f.head:][:f.head])
		}
		gemm.Gemm(pool, false, false, rows, f.head, n, 1, p, keyTile, f.v[at:], f.keyWidth, 1, o, f.head)
	}
	for r := range rows {
		if sum[r] != 0 {
			f.loops.Scale(f.o[f.at(t, r, f.outWidth):][:f.head], o[r*f.head:], 1/sum[r])
			f.lse[f.statistic(t, r)] = top[r] + F(math.Log(float64(sum[r])))
		}
	}
}

// softmax turns a row of scores into exponentials over lo..hi and zeros elsewhere, and rescales what has
// been summed so far when the row's maximum rises.
func (f *attentionForward[F]) softmax(row []F, lo, hi int, top, sum *F, o []F) {
	clear(row[:lo])
	clear(row[hi:])
	if lo == hi {
		return
	}
	if m := f.loops.Max(row[lo:hi]); !(m <= *top) {
		if *sum != 0 {
			s := F(math.Exp(float64(*top - m)))
			*sum *= s
			f.loops.Scale(o, o, s)
		}
		*top = m
	}
	*sum += f.loops.Exp(row[lo:hi], row[lo:hi], *top)
}
