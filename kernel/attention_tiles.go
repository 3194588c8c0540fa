package kernel

import (
	"unsafe"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/kernel/simd"
)

// keyTile is the number of keys that a tile of queries meets at a time. Of 64, 96, 128 and 192 the larger
// ones are a tenth faster; their scores must stay in a core's second cache.
const keyTile = 128

// queryTile is the number of queries in a tile. The query heads of one key head are stacked in it, so that
// a packed tile of keys serves about 144 rows whatever the group is; rows come in twelves as gemm takes them.
func queryTile(group int) int { return max(12, min(48, 192/group/12*12)) }

// attentionSlot is a worker's scratch in bytes: stacked rows [G*tile,D], scores [G*tile,keyTile] and
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

// avx512Scratch is a worker's scratch for that in elements.
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
}

func newAttentionShape[F Float](o Attention, q, k, cuQ, cuK Tensor) attentionShape[F] {
	group := o.Heads / o.KVHeads
	return attentionShape[F]{
		loops: simd.Best[F](), head: q.Shape[1] / o.Heads, group: group, tile: queryTile(group),
		queryWidth: q.Shape[1], keyWidth: k.Shape[1], outWidth: q.Shape[1], kvWidth: k.Shape[1], queries: q.Shape[0], keys: k.Shape[0],
		window: o.Window, scale: F(o.Scale), cap: F(o.Cap), cuQ: cuQ.I32(), cuK: cuK.I32(),
	}
}

// stack is a tile of queries q0..q1 of a sequence, for the query heads of key head kv: row g*(q1-q0)+i is
// query q0+i of the g-th of them.
type stack struct {
	sequence
	kv, from, to int
}

func (t stack) queries() int { return t.to - t.from }

// sequence is a run of queries and the run of keys they look at.
type sequence struct{ q0, q1, k0, k1 int }

// sequence is the s-th one; bounds beyond the tensors are cut.
func (a *attentionShape[F]) sequence(s int) sequence {
	cut := func(v int32, n int) int { return min(max(int(v), 0), n) }
	return sequence{cut(a.cuQ[s], a.queries), cut(a.cuQ[s+1], a.queries), cut(a.cuK[s], a.keys), cut(a.cuK[s+1], a.keys)}
}

// sees is the range of keys that query i of a sequence may look at.
func (a *attentionShape[F]) sees(s sequence, i int) (lo, hi int) {
	hi = s.k1 - (s.q1 - 1 - i)
	lo = s.k0
	if a.window > 0 {
		lo = max(lo, hi-a.window)
	}
	return lo, max(lo, hi)
}

// visible is the part of the keys k0..k1 that a row of a stack sees, counted from k0.
func (a *attentionShape[F]) visible(t stack, row, k0, k1 int) (lo, hi int) {
	lo, hi = a.sees(t.sequence, t.from+row%t.queries())
	return min(max(lo, k0), k1) - k0, min(max(hi, k0), k1) - k0
}

// at is where a row of a stack begins in a tensor with a row of that width for each query.
func (a *attentionShape[F]) at(t stack, row, width int) int {
	n := t.queries()
	return (t.from+row%n)*width + (t.kv*a.group+row/n)*a.head
}

// statistic is where a row of a stack stands in a tensor [H,M].
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

// scores is dst [rows,keyTile] = left [rows,D] right [columns,D] transposed, right a head of keys or values.
func (a *attentionShape[F]) scores(pool *gemm.Pool, dst, left, right []F, rows, columns int) {
	gemm.Gemm(pool, false, true, rows, columns, a.head, 1, left, a.head, right, a.keyWidth, 0, dst, keyTile)
}

// capScores caps scores.
func (a *attentionShape[F]) capScores(s []F) {
	if a.cap > 0 {
		a.loops.SoftCap(s, s, a.cap)
	}
}

// capGrad turns gradients for probabilities dp into (dp - delta) times what the cap lets through at capped scores s, which is
// what the gradients for scores are but for the probabilities. It returns what is left to take off: delta where there is no cap.
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
