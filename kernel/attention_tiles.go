package kernel

import (
	"unsafe"
)

// attentionTile is the number of queries, and of keys, that are multiplied at a time: a tile of scores
// and the rows it is made of fit a core's second-level cache for every head size.
const attentionTile = 64

// attentionSlot is a worker's scratch in bytes: packed operands [D, tile] and score matrices [tile, tile],
// and for every head of the group two rows of softmax statistics.
func attentionSlot(size, head, group, operands, scores int) int64 {
	return AlignUp(int64(size*attentionTile) * int64(operands*head+scores*attentionTile+2*group))
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
	lanes      *lanes[F]
	head       int // elements of a head
	group      int // query heads of a key head
	queryWidth int
	keyWidth   int
	queries    int
	keys       int
	window     int
	scale      F
	cuQ, cuK   []int32
}

func newAttentionShape[F Float](o Attention, q, k, cuQ, cuK Tensor) attentionShape[F] {
	return attentionShape[F]{
		lanes: lanesOf[F](), head: q.Shape[1] / o.Heads, group: o.Heads / o.KVHeads,
		queryWidth: q.Shape[1], keyWidth: k.Shape[1], queries: q.Shape[0], keys: k.Shape[0],
		window: o.Window, scale: F(o.Scale), cuQ: cuQ.I32(), cuK: cuK.I32(),
	}
}

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

// transpose packs rows of src, stride apart, as columns of dst [head, attentionTile]; the columns up to
// the next multiple of eight become zero.
func (a *attentionShape[F]) transpose(dst, src []F, stride, rows int) {
	for d := range a.head {
		column := dst[d*attentionTile:][:(rows+7)&^7]
		for j := range rows {
			column[j] = src[j*stride+d]
		}
		for j := rows; j < len(column); j++ {
			column[j] = 0
		}
	}
}

// product is dst [rows, attentionTile] = left [rows, head] right [head, columns].
func (a *attentionShape[F]) product(dst, left []F, leftStride int, right []F, rows, columns int) {
	columns = (columns + 7) &^ 7
	for i := range rows {
		clear(dst[i*attentionTile:][:columns])
	}
	a.lanes.tile(dst, attentionTile, matrix[F]{left, leftStride, 1}, matrix[F]{right, attentionTile, 1}, rows, columns, a.head)
}

// seenBy is the range of queries that look at any of the keys k0..k1 of a sequence.
func (a *attentionShape[F]) seenBy(s sequence, k0, k1 int) (lo, hi int) {
	behind := (s.q1 - 1) - (s.k1 - 1) // query i sees key i-behind last
	lo, hi = max(s.q0, k0+behind), s.q1
	if a.window > 0 {
		hi = min(hi, k1-1+behind+a.window)
	}
	return lo, max(lo, hi)
}
