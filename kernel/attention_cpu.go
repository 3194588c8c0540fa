package kernel

import (
	"math"
	"unsafe"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/kernel/simd"
)

// keyTile is the number of keys that a tile of queries meets at a time. Of 64, 96, 128 and 192 the larger
// ones are a tenth faster; their scores must stay in a core's second cache.
const keyTile = 128

// queryTile returns the number of queries in a tile. The query heads of one key head are stacked in it, so that
// a packed tile of keys serves about 144 rows whatever the group is; rows come in twelves as gemm takes them.
func queryTile(group int) int { return max(12, min(48, 192/group/12*12)) }

// attentionSlot returns a worker's scratch in bytes: stacked rows [G*tile,D], scores [G*tile,keyTile] and
// statistics [G*tile].
func attentionSlot(size, head, group, rows, scores, statistics int) int64 {
	stacked := group * queryTile(group) * (rows*head + scores*keyTile + statistics)
	return AlignUp(int64(size) * int64(max(stacked, avx512Scratch(head))))
}

// Where queries stand side by side (attention_avx512.go): how many do, how many are a tile, and the
// largest head that is computed so.
const (
	avx512Queries = 16
	avx512Tile    = 64
	avx512Head    = 64
)

// avx512Scratch returns a worker's scratch for that in elements.
func avx512Scratch(head int) int {
	if head > avx512Head {
		return 0
	}
	return 2*avx512Queries*keyTile + 6*avx512Queries*head + 3*avx512Queries
}

// slots hands out one worker's scratch at a time.
type slots[F Float] struct {
	elem []F
	size int
	free chan int
}

// newSlots cuts memory into n slots of some bytes each.
func newSlots[F Float](mem []byte, n int, bytes int64) *slots[F] {
	var f F
	size := int(bytes) / int(unsafe.Sizeof(f))
	s := &slots[F]{elem: carve[F](mem, n*size), size: size, free: make(chan int, n)}
	for i := range n {
		s.free <- i
	}
	return s
}

func (s *slots[F]) take() (int, []F) {
	i := <-s.free
	return i, s.elem[i*s.size:][:s.size]
}

func (s *slots[F]) give(i int) { s.free <- i }

// attentionShape is what forward and backward share: sizes, sequence bounds, visibility.
type attentionShape[F Float] struct {
	loops      *simd.Loops[F]
	head       int // elements of a head
	group      int // query heads of a key head
	tile       int // queries of a tile
	queryWidth int // from row to row of q and its gradient
	keyWidth   int // of k, v and their gradients
	outWidth   int // of o and its gradient: all query heads
	kvWidth    int // all key heads
	queries    int
	keys       int
	window     int
	scale, cap F // cap 0: none
	cuQ, cuK   []int32
	prefix     []int32 // the sequence that each sequence continues; nil = none continues another
	spans      []int32 // Attention's spans; nil = no query sees keys after its own
}

// newAttentionShape returns the shape of attention of q and k; bounds are cuQ, cuK and, where there are some,
// prefixes or
// spans.
func newAttentionShape[F Float](o Attention, q, k Tensor, bounds []Tensor) attentionShape[F] {
	group := o.Heads / o.KVHeads
	a := attentionShape[F]{
		loops: simd.Best[F](), head: q.Shape[1] / o.Heads, group: group, tile: queryTile(group),
		queryWidth: q.Shape[1], keyWidth: k.Shape[1], outWidth: q.Shape[1], kvWidth: k.Shape[1], queries: q.Shape[0],
		keys:   k.Shape[0],
		window: o.Window, scale: F(o.Scale), cap: F(o.Cap), cuQ: bounds[0].I32(), cuK: bounds[1].I32(),
	}
	if o.Prefixes {
		a.prefix = bounds[2].I32()
	}
	if o.Spans {
		a.spans = bounds[2].I32()
	}
	return a
}

// stack is a tile of queries q0..q1 of a sequence, for the query heads of key head kv: row g*(q1-q0)+i is
// query q0+i of the g-th of them.
type stack struct {
	of           int // the queries' sequence
	kv, from, to int
}

func (t stack) queries() int { return t.to - t.from }

// sequence is a run of queries and the run of keys they look at.
type sequence struct {
	q0, q1, k0, k1 int
	// beyond is the number of keys from k1 to the last query's own key, its own included: the number of queries if the
	// keys belong to a prefix, 0 if the last query's own key is the last of the run.
	beyond int
}

// sequence returns the s-th one; bounds beyond the tensors are cut.
func (a *attentionShape[F]) sequence(s int) sequence {
	cut := func(v int32, n int) int { return min(max(int(v), 0), n) }
	return sequence{q0: cut(a.cuQ[s], a.queries), q1: cut(a.cuQ[s+1], a.queries), k0: cut(a.cuK[s], a.keys),
		k1: cut(a.cuK[s+1], a.keys)}
}

// runs returns the runs of keys that the queries of sequence s look at: the keys of its prefix, and its own.
func (a *attentionShape[F]) runs(s int) (all [2]sequence, n int) {
	own := a.sequence(s)
	if a.prefix != nil && a.prefix[s] >= 0 && int(a.prefix[s]) < s {
		p := a.sequence(int(a.prefix[s]))
		all[n] = sequence{own.q0, own.q1, p.k0, p.k1, own.q1 - own.q0}
		n++
	}
	all[n] = own
	return all, n + 1
}

// sees returns the range of keys that query i of a sequence may look at.
func (a *attentionShape[F]) sees(s sequence, i int) (lo, hi int) {
	hi = s.k1 + s.beyond - (s.q1 - 1 - i)
	lo = s.k0
	if a.window > 0 {
		lo = max(lo, hi-a.window)
	}
	if s.beyond > 0 {
		lo, hi = min(lo, s.k1), min(hi, s.k1)
	}
	if a.spans != nil {
		hi = min(hi+max(int(a.spans[2*i+1]), 0), s.k1)
	}
	return lo, max(lo, hi)
}

// reached returns the range of keys that some query of a stack may look at.
func (a *attentionShape[F]) reached(t stack, s sequence) (first, last int) {
	first, _ = a.sees(s, t.from)
	_, last = a.sees(s, t.to-1)
	if a.spans != nil { // a tile may end within a span
		for i := t.from; i < t.to; i++ {
			_, hi := a.sees(s, i)
			last = max(last, hi)
		}
	}
	return first, last
}

// visible returns the part of the keys k0..k1 of a sequence that a row of a stack sees, counted from k0.
func (a *attentionShape[F]) visible(t stack, s sequence, row, k0, k1 int) (lo, hi int) {
	lo, hi = a.sees(s, t.from+row%t.queries())
	return min(max(lo, k0), k1) - k0, min(max(hi, k0), k1) - k0
}

// at returns where a row of a stack begins in a tensor with a row of that width for each query.
func (a *attentionShape[F]) at(t stack, row, width int) int {
	n := t.queries()
	return (t.from+row%n)*width + (t.kv*a.group+row/n)*a.head
}

// statistic returns where a row of a stack stands in a tensor [H,M].
func (a *attentionShape[F]) statistic(t stack, row int) int {
	n := t.queries()
	return (t.kv*a.group+row/n)*a.queries + t.from + row%n
}

// gather copies a stack's rows of src, times s, to dst [rows,D].
func (a *attentionShape[F]) gather(dst, src []F, width int, t stack, rows int, s F) {
	for r := range rows {
		a.loops.Scale(dst[r*a.head:][:a.head], src[a.at(t, r, width):], s)
	}
}

// rowsTimes is c [m,n] = left [m,k] right + beta c for the rows of a stack; right is [k,n], or [n,k] with transB.
// What a query gets does not depend on how many queries of its sequence the stack has, so that a sequence has the
// same values wherever in a batch it lies. A sequence of one query, as when a text is generated, is a stack by
// itself anyway.
func (a *attentionShape[F]) rowsTimes(t stack, pool *gemm.Pool, transB bool, m, n, k int, left []F, lda int, right []F,
	beta F, c []F, ldc int) {
	if s := a.sequence(t.of); s.q1-s.q0 == 1 {
		gemm.Gemm(pool, false, transB, m, n, k, 1, left, lda, right, a.keyWidth, beta, c, ldc)
		return
	}
	gemm.GemmByTiles(pool, false, transB, m, n, k, 1, left, lda, right, a.keyWidth, beta, c, ldc)
}

// scores is dst [rows,keyTile] = left [rows,D] right [columns,D] transposed, right a head of keys or values.
func (a *attentionShape[F]) scores(t stack, pool *gemm.Pool, dst, left, right []F, rows, columns int) {
	a.rowsTimes(t, pool, true, rows, columns, a.head, left, a.head, right, 0, dst, keyTile)
}

// capScores caps scores.
func (a *attentionShape[F]) capScores(s []F) {
	if a.cap > 0 {
		a.loops.SoftCap(s, s, a.cap)
	}
}

// capGrad turns gradients for probabilities dp into (dp - delta) times what the cap lets through at capped scores s,
// which is what the gradients for scores are but for the probabilities. It returns what is left to take off: delta
// where there is no cap.
func (a *attentionShape[F]) capGrad(s, dp []F, delta F) F {
	if a.cap == 0 {
		return delta
	}
	dp = dp[:len(s)]
	for i, x := range s {
		t := x / a.cap
		dp[i] = (dp[i] - delta) * (1 - t*t)
	}
	return 0
}

func attention[F Float](c *CPU, o Attention, in, out []Tensor) func() {
	return attend(c, o, newAttentionShape[F](o, in[0], in[1], in[3:]), Floats[F](in[0]), Floats[F](in[1]),
		Floats[F](in[2]), out)
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
			f.stack(pool, stack{s, kv, q0, q1}, mem)
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
	runs, count := f.runs(t.of)
	for _, s := range runs[:count] {
		first, last := f.reached(t, s)
		for k0 := first; k0 < last; k0 += keyTile {
			n, at := min(keyTile, last-k0), k0*f.keyWidth+t.kv*f.head
			f.scores(t, pool, p, q, f.k[at:], rows, n)
			for r := range rows {
				lo, hi := f.visible(t, s, r, k0, k0+n)
				f.capScores(p[r*keyTile:][lo:hi])
				f.softmax(p[r*keyTile:][:n], lo, hi, &top[r], &sum[r], o[r*f.head:][:f.head])
			}
			f.rowsTimes(t, pool, false, rows, f.head, n, p, keyTile, f.v[at:], 1, o, f.head)
		}
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

// attentionGrad goes over the tiles of scores once. dq of a tile of queries is its pool; dk and dv are sums
// over such tiles, which are dealt out to a fixed number of strands: each adds up its pool partial sums,
// and these are added in order. So every sum has one order whatever the number of threads. Where there are
// sequences enough, a task is a sequence instead and writes dk and dv itself.
func attentionGrad[F Float](c *CPU, o AttentionGrad, in, out []Tensor) func() {
	return differentiateAttention(c, o, &attentionBackward[F]{
		attentionShape: newAttentionShape[F](Attention(o), in[0], in[1], in[6:]),
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

// strands returns the number of partial sums of dk and dv: about sixteen tasks with the key heads.
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
				b.stack(pool, stack{s, kv, q0, q1}, mem, dk, dv, b.head)
			}
		}
	}
	b.slots.give(slot)
}

// even tells whether the sequences alone, with the key heads, are tasks enough: none is more than an eighth
// of the work, and they share no row.
func (b *attentionBackward[F]) even(heads int) bool {
	if b.prefix != nil {
		return false
	}
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
		b.stack(pool, stack{s, kv, lo, min(lo+b.tile, seq.q1)}, mem, dk, dv, b.keyWidth)
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
	runs, count := b.runs(t.of)
	for _, s := range runs[:count] {
		first, last := b.reached(t, s)
		for k0 := first; k0 < last; k0 += keyTile {
			n, at := min(keyTile, last-k0), k0*b.keyWidth+t.kv*b.head
			b.scores(t, pool, w.p, w.q, b.k[at:], rows, n)
			b.scores(t, pool, w.ds, w.do, b.v[at:], rows, n)
			b.probabilities(w, t, s, rows, k0, n)
			b.rowsTimes(t, pool, false, rows, b.head, n, w.ds, keyTile, b.k[at:], 1, w.dq, b.head)
			gemm.Gemm(pool, true, false, n, b.head, rows, 1, w.ds, keyTile, w.q, b.head, 1, dk[k0*stride:], stride)
			gemm.Gemm(pool, true, false, n, b.head, rows, 1, w.p, keyTile, w.do, b.head, 1, dv[k0*stride:], stride)
		}
	}
	for r := range rows {
		b.loops.Scale(b.dq[b.at(t, r, b.queryWidth):][:b.head], w.dq[r*b.head:], b.scale)
	}
}

// probabilities turns scores and do vᵀ of a stack and the n keys of a sequence from k0 on into p and ds.
func (b *attentionBackward[F]) probabilities(w workspace[F], t stack, s sequence, rows, k0, n int) {
	for r := range rows {
		p, ds := w.p[r*keyTile:][:n], w.ds[r*keyTile:][:n]
		lo, hi := b.visible(t, s, r, k0, k0+n)
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
