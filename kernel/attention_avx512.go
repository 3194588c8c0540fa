package kernel

import (
	"math"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/kernel/simd"
)

// The bodies in which sixteen queries of a head stand side by side in a vector, see simd/attention_amd64.s. A
// head's elements then need no multiple of anything wide, and softmax no sum across a vector.

// avx512Fits tells whether heads of some size are computed so.
func avx512Fits(head int) bool {
	return head%8 == 0 && head <= avx512Head && gemm.Path() == "avx512"
}

// quicken chooses AVX-512 where it runs and no query sees keys after its own.
func (f *attentionForward[F]) quicken() {
	if g, ok := any(f).(*attentionForward[float32]); ok && f.spans == nil && avx512Fits(f.head) {
		g.tile, g.stack = avx512Tile, avx512Forward{g}.rows
	}
}

func (b *attentionBackward[F]) quicken() {
	if g, ok := any(b).(*attentionBackward[float32]); ok && b.spans == nil && avx512Fits(b.head) {
		g.tile, g.stack = avx512Tile, avx512Backward{g}.rows
	}
}

type avx512Forward struct{ *attentionForward[float32] }

func (f avx512Forward) rows(_ *gemm.Pool, t stack, mem []float32) {
	if t.queries() == 1 { // as when a text is generated: its heads stand side by side, which see the same keys
		for h := 0; h < f.group; h += avx512Queries {
			f.lanes(t, t.kv*f.group+h, t.from, 1, min(avx512Queries, f.group-h), mem)
		}
		return
	}
	for h := t.kv * f.group; h < (t.kv+1)*f.group; h++ {
		for q := t.from; q < t.to; q += avx512Queries {
			f.lanes(t, h, q, min(avx512Queries, t.to-q), 1, mem)
		}
	}
}

// lanes computes rows queries of head h from q on, or query q of some heads from h on, tile of keys by tile of keys.
func (f avx512Forward) lanes(t stack, h, q, rows, heads int, mem []float32) {
	count, width, outWidth, statistics := rows, f.queryWidth, f.outWidth, 1
	if rows == 1 {
		count, width, outWidth, statistics = heads, f.head, f.head, f.attentionShape.queries
	}
	size := f.head * avx512Queries
	left, acc, mem := mem[:size], mem[size:][:size], mem[2*size:]
	top, sum, fix, p := mem[:16], mem[16:][:16], mem[32:][:16], mem[48:][:keyTile*avx512Queries]
	avx512Columns(left, f.q[q*f.queryWidth+h*f.head:], width, count, f.head, f.scale)
	clear(acc)
	for i := range top {
		top[i], sum[i] = -math.MaxFloat32, 0
	}
	at, stride := t.kv*f.head, 4*f.keyWidth
	runs, n := f.runs(t.of)
	for _, s := range runs[:n] {
		first, diagonal, last := f.reach(s, q, rows)
		for k0 := first; k0 < last; k0 += keyTile {
			n := min(keyTile, last-k0)
			simd.Scores(&p[0], &left[0], &f.k[k0*f.keyWidth+at], stride, n, f.head)
			f.capScores(p[:n*avx512Queries])
			if rows > 1 { // one query sees all keys from first to last
				f.hide(p, k0, n, diagonal)
			}
			simd.Softmax(&p[0], n, &top[0])
			simd.Gather(&acc[0], &fix[0], &p[0], &f.v[k0*f.keyWidth+at], stride, n, f.head)
		}
	}
	for i := range count {
		if sum[i] != 0 {
			f.lse[h*f.attentionShape.queries+q+i*statistics] = top[i] + float32(math.Log(float64(sum[i])))
			sum[i] = 1 / sum[i]
		}
	}
	avx512Rows(f.o[q*f.outWidth+h*f.head:], outWidth, count, acc, sum, f.head)
}

type avx512Backward struct{ *attentionBackward[float32] }

func (b avx512Backward) rows(_ *gemm.Pool, t stack, mem, dk, dv []float32, stride int) {
	for h := t.kv * b.group; h < (t.kv+1)*b.group; h++ {
		for q := t.from; q < t.to; q += avx512Queries {
			b.queries(t, h, q, min(avx512Queries, t.to-q), mem, dk, dv, stride)
		}
	}
}

// queries computes dq of rows queries of head h from q on, and adds what they give to dk and dv.
func (b avx512Backward) queries(t stack, h, q, rows int, mem, dk, dv []float32, gradStride int) {
	size := b.head * avx512Queries
	take := func(n int) []float32 {
		part := mem[:n]
		mem = mem[n:]
		return part
	}
	left, right, acc := take(size), take(size), take(size)
	lse, delta, ones := take(16), take(16), take(16)
	p, ds := take(keyTile*avx512Queries), take(keyTile*avx512Queries)
	at, atOut := q*b.queryWidth+h*b.head, q*b.outWidth+h*b.head
	avx512Columns(acc, b.o[atOut:], b.outWidth, rows, b.head, 1)
	avx512Columns(right, b.do[atOut:], b.outWidth, rows, b.head, 1)
	simd.Dots(&delta[0], &acc[0], &right[0], b.head)
	avx512Columns(left, b.q[at:], b.queryWidth, rows, b.head, b.scale)
	clear(acc)
	for i := range ones {
		ones[i], lse[i] = 1, math.MaxFloat32 // no weight for a lane without a query
	}
	copy(lse[:rows], b.lse[h*b.attentionShape.queries+q:])
	var off [avx512Queries]float32 // delta where the cap's gradient takes it off
	if b.cap > 0 {
		copy(off[:], delta)
		clear(delta)
	}
	queries, grads, width, gradWidth := b.q[at:], b.do[atOut:], b.queryWidth, b.outWidth
	if rows < avx512Queries {
		queries, grads, width, gradWidth = take(size), take(size), b.head, b.head
		clear(queries)
		clear(grads)
		for i := range rows {
			copy(queries[i*b.head:][:b.head], b.q[at+i*b.queryWidth:])
			copy(grads[i*b.head:][:b.head], b.do[atOut+i*b.outWidth:])
		}
	}
	from, stride := t.kv*b.head, 4*b.keyWidth
	runs, count := b.runs(t.of)
	for _, s := range runs[:count] {
		first, diagonal, last := b.reach(s, q, rows)
		for k0 := first; k0 < last; k0 += keyTile {
			n, key := min(keyTile, last-k0), k0*b.keyWidth+from
			simd.Scores(&p[0], &left[0], &b.k[key], stride, n, b.head)
			simd.Scores(&ds[0], &right[0], &b.v[key], stride, n, b.head)
			if b.cap > 0 {
				b.capScores(p[:n*avx512Queries])
				for i := range n * avx512Queries {
					t := p[i] / b.cap
					ds[i] = (ds[i] - off[i%avx512Queries]) * (1 - t*t)
				}
			}
			b.hide(p, k0, n, diagonal)
			simd.SoftmaxGrad(&p[0], &ds[0], n, &lse[0], b.scale)
			simd.Gather(&acc[0], &ones[0], &ds[0], &b.k[key], stride, n, b.head)
			simd.Spread(&dk[k0*gradStride], &ds[0], &queries[0], 4*gradStride, 4*width, n, b.head)
			simd.Spread(&dv[k0*gradStride], &p[0], &grads[0], 4*gradStride, 4*gradWidth, n, b.head)
		}
	}
	avx512Rows(b.dq[at:], b.queryWidth, rows, acc, ones, b.head)
}

// reach returns the range first..last of keys that some of the rows queries from q on see; the first of them sees
// those before diagonal, each later one a key more.
func (a *attentionShape[F]) reach(s sequence, q, rows int) (first, diagonal, last int) {
	first, _ = a.sees(s, q)
	diagonal = s.k1 + s.beyond - (s.q1 - 1 - q)
	return first, diagonal, min(diagonal+rows-1, s.k1)
}

// hide takes from the scores [n,16] of the keys from k0 on those that a query does not see.
func (a *attentionShape[F]) hide(p []F, k0, n, diagonal int) {
	hidden := F(math.Inf(-1))
	for k := max(k0, diagonal); k < k0+n; k++ {
		row := p[(k-k0)*avx512Queries:][:avx512Queries]
		for i := range min(avx512Queries, k-diagonal+1) {
			row[i] = hidden
		}
	}
	if a.window == 0 {
		return
	}
	for k := k0; k < min(k0+n, diagonal+avx512Queries-1-a.window); k++ {
		row := p[(k-k0)*avx512Queries:][:avx512Queries]
		for i := max(0, k-diagonal+a.window+1); i < avx512Queries; i++ {
			row[i] = hidden
		}
	}
}

// avx512Columns is dst [D,16] = s times the transpose of rows rows of src, zero in the lanes beyond.
func avx512Columns(dst, src []float32, width, rows, head int, s float32) {
	if rows == avx512Queries {
		_ = src[(rows-1)*width+head-1]
		simd.Columns(&dst[0], &src[0], 4*width, head, s)
		return
	}
	clear(dst)
	for i := range rows {
		for d, x := range src[i*width:][:head] {
			dst[d*avx512Queries+i] = x * s
		}
	}
}

// avx512Rows writes the transpose of src [D,16], each lane times its factor, to rows rows of dst.
func avx512Rows(dst []float32, width, rows int, src, factor []float32, head int) {
	if rows == avx512Queries {
		_ = dst[(rows-1)*width+head-1]
		simd.Rows(&dst[0], 4*width, &src[0], &factor[0], head)
		return
	}
	for i := range rows {
		row := dst[i*width:][:head]
		for d := range row {
			row[d] = src[d*avx512Queries+i] * factor[i]
		}
	}
}
