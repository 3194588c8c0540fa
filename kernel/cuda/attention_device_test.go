//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// attended is one attention with its gradients, all [M, heads, D].
type attended struct{ o, lse, dq, dk, dv []float64 }

// attend returns the meaning of the attention kernels in float64; with low, scores, probabilities and their gradients
// are rounded to bf16 where a plain bf16 implementation stores them. cap is the scores' soft cap, 0 = none.
//
// Row i sees no key from hole[i][0] up to hole[i][1]; nil = there are no holes.
func attend(q, k, v, do []float64, first []int, hole [][2]int, H, K, D int, scale, cap float64, low bool) attended {
	hidden := func(i, j int) bool { return hole != nil && j >= hole[i][0] && j < hole[i][1] }
	M := len(first)
	rd := func(x float64) float64 { return x }
	if low {
		rd = round
	}
	a := attended{make([]float64, M*H*D), make([]float64, H*M), make([]float64, M*H*D), make([]float64, M*K*D),
		make([]float64, M*K*D)}
	var wg sync.WaitGroup
	for kv := range K {
		wg.Add(1)
		go func() {
			defer wg.Done()
			p, through := make([]float64, M), make([]float64, M)
			for h := kv * (H / K); h < (kv+1)*(H/K); h++ {
				for i := range M {
					qi, oi, doi, dqi := q[(i*H+h)*D:][:D], a.o[(i*H+h)*D:][:D], do[(i*H+h)*D:][:D], a.dq[(i*H+h)*D:][:D]
					top, sum := math.Inf(-1), 0.
					for j := first[i]; j <= i; j++ {
						if hidden(i, j) {
							continue
						}
						s := 0.
						for d, x := range k[(j*K+kv)*D:][:D] {
							s += qi[d] * x
						}
						p[j] = rd(rd(s) * scale)
						through[j] = 1
						if cap > 0 {
							t := rd(math.Tanh(p[j] / cap))
							p[j], through[j] = rd(t*cap), 1-t*t
						}
						top = max(top, p[j])
					}
					for j := first[i]; j <= i; j++ {
						if hidden(i, j) {
							continue
						}
						sum += math.Exp(p[j] - top)
					}
					a.lse[h*M+i] = top + math.Log(sum)
					delta := 0.
					for j := first[i]; j <= i; j++ {
						if hidden(i, j) {
							continue
						}
						p[j] = rd(math.Exp(p[j]-top) / sum)
						for d, x := range v[(j*K+kv)*D:][:D] {
							oi[d] += p[j] * x
						}
					}
					for d := range D {
						delta += rd(oi[d]) * doi[d]
					}
					for j := first[i]; j <= i; j++ {
						if hidden(i, j) {
							continue
						}
						dp := 0.
						for d, x := range v[(j*K+kv)*D:][:D] {
							dp += doi[d] * x
							a.dv[(j*K+kv)*D+d] += p[j] * doi[d]
						}
						ds := rd(p[j] * (rd(dp) - delta) * through[j])
						for d, x := range k[(j*K+kv)*D:][:D] {
							dqi[d] += scale * ds * x
							a.dk[(j*K+kv)*D+d] += scale * ds * qi[d]
						}
					}
				}
			}
		}()
	}
	wg.Wait()
	return a
}

type attentionCase struct {
	lengths []int // the last may be left out of cu: the tail is a sequence of its own
	H, K, D int
	window  int
	fused   bool // q, k, v in one matrix
	tail    bool // cu ends before M
	repeats int  // trailing entries of cu that repeat
	cap     float64
	prefix  []int32 // the sequence that each sequence continues; nil = none does
}

// headMap describes M rows of heads for the copy engine.
func (r *harness) headMap(p gpu.Ptr, M, heads, D, ld, rows int) gpu.TensorMap {
	r.t.Helper()
	m, err := gpu.NewTensorMap(p, []int64{int64(D), int64(heads), int64(M)}, []int64{int64(2 * D), int64(2 * ld)},
		[]int{64, 1, rows}, 128)
	r.ok(err)
	return m
}

// attentionBuffers are the addresses one attention works on.
type attentionBuffers struct {
	q, k, v, do, o, lse, delta, dq, dk, dv, part, cu gpu.Ptr
	M, B, H, K, D, ldq, ldk, ldo, window             int
	scale, cap                                       float32
}

// attention prepares the launches of one attention: forward and the three or four of backward.
func (r *harness) attention(a Attention, b attentionBuffers) (forward *gpu.Launch, backward []*gpu.Launch) {
	r.t.Helper()
	return r.prefixed(a, b, 0)
}

// prefixed is attention over sequences that may continue others; prefix 0 = none does.
func (r *harness) prefixed(a Attention, b attentionBuffers, prefix gpu.Ptr) (forward *gpu.Launch,
	backward []*gpu.Launch) {
	r.t.Helper()
	m := func(v int) any { return i32(v) }
	delta := r.launch(a.Delta, b.delta, b.o, b.do, m(b.M), m(b.H), m(b.D), m(b.ldo))
	var kv, query *gpu.Launch
	sizes := []any{m(b.M), m(b.B), m(b.H), m(b.K), m(b.D)}
	args := func(a []any, more ...any) []any {
		if prefix != 0 {
			return append(append(slices.Clone(a), sizes...), append(more, b.scale, prefix)...)
		}
		all := append(append(slices.Clone(a), sizes...), append(more, b.scale, m(b.window))...)
		if b.cap > 0 {
			all = append(all, b.cap)
		}
		return all
	}
	if a.Family == Hopper {
		var orders []gpu.Ptr
		for _, o := range a.Orders {
			p, by := r.out("order", int64(4*o.Tiles)), 0
			if o.ByKeys {
				by = 1
			}
			r.run(o.Geometry, p, b.cu, m(b.M), m(b.B), m(o.Rows), m(b.window), m(by))
			seen := make([]bool, o.Tiles)
			for _, i := range get[int32](r, p, o.Tiles) {
				if int(i) >= o.Tiles || i < 0 || seen[i] {
					r.t.Fatalf("attention_order: tile %d is missing or there twice", i)
				}
				seen[i] = true
			}
			orders = append(orders, p)
		}
		if b.M%2 == 1 || a.Orders == nil { // natural order works as well
			orders = []gpu.Ptr{0, 0, 0}
		}
		q := func(rows int) any { return r.headMap(b.q, b.M, b.H, b.D, b.ldq, rows) }
		k := func(rows int) any { return r.headMap(b.k, b.M, b.K, b.D, b.ldk, rows) }
		v := func(rows int) any { return r.headMap(b.v, b.M, b.K, b.D, b.ldk, rows) }
		do := func(rows int) any { return r.headMap(b.do, b.M, b.H, b.D, b.ldo, rows) }
		x := a.Boxes
		forward = r.launch(a.Forward, args([]any{b.o, b.lse, q(x.ForwardQ), k(x.ForwardK), v(x.ForwardK), b.cu,
			orders[OrderForward]}, m(b.ldo))...)
		kv = r.launch(a.KV, args([]any{b.dk, b.dv, b.part, q(x.KVQ), k(x.KVK), v(x.KVK), do(x.KVQ), b.lse, b.delta,
			b.cu, orders[OrderKV]}, m(b.ldk), m(a.Splits))...)
		query = r.launch(a.Query, args([]any{b.dq, q(x.QueryQ), k(x.QueryK), v(x.QueryK), do(x.QueryQ), b.lse, b.delta,
			b.cu, orders[OrderQuery]}, m(b.ldq))...)
	} else {
		ld := []any{m(b.ldq), m(b.ldk), m(b.ldo)}
		forward = r.launch(a.Forward, args([]any{b.o, b.lse, b.q, b.k, b.v, b.cu}, ld...)...)
		kv = r.launch(a.KV, args([]any{b.dk, b.dv, b.part, b.q, b.k, b.v, b.do, b.lse, b.delta, b.cu}, ld...)...)
		query = r.launch(a.Query, args([]any{b.dq, b.q, b.k, b.v, b.do, b.lse, b.delta, b.cu}, ld...)...)
	}
	backward = []*gpu.Launch{delta, kv}
	if a.Splits > 1 {
		backward = append(backward, r.launch(a.Combine, b.dk, b.dv, b.part, m(a.Splits), m(b.M), m(b.K), m(b.D),
			m(b.ldk)))
	}
	return forward, append(backward, query)
}

func TestAttention(t *testing.T) {
	t.Run("mma", func(t *testing.T) { testAttention(t, MMA, []int{8, 16, 32, 40, 64, 80, 96, 128, 256}) })
	t.Run("wide", func(t *testing.T) { testAttention(t, MMA, []int{264, 320, 512}) })
	t.Run("hopper", func(t *testing.T) {
		if n, _ := gpu.Devices(); n > 0 {
			if p, err := gpu.DeviceProperties(0); err != nil || p.SM() != 90 {
				t.Skipf("the wgmma kernels need compute capability 9.0, this is %d.%d", p.Major, p.Minor)
			}
		}
		testAttention(t, Hopper, []int{40, 64, 72, 80, 96, 112, 128})
	})
}

// pack returns the case's rows, where sequences begin and end, and the first key that each row sees.
func (c attentionCase) pack() (M int, cu []int32, first []int) {
	cu = []int32{0}
	for _, n := range c.lengths {
		for i := range n {
			f := M
			if c.window > 0 {
				f = max(f, M+i-c.window+1)
			}
			first = append(first, f)
		}
		M += n
		cu = append(cu, int32(M))
	}
	if c.tail {
		cu = cu[:len(cu)-1]
	}
	for range c.repeats {
		cu = append(cu, int32(M))
	}
	return M, cu, first
}

// holes returns the keys that each row does not see between the prefix that its sequence continues and its own, and
// moves first to the start of that prefix.
func (c attentionCase) holes(cu []int32, first []int) [][2]int {
	if c.prefix == nil {
		return nil
	}
	hole := make([][2]int, len(first))
	for s, p := range c.prefix {
		for i := cu[s]; i < cu[s+1] && p >= 0; i++ {
			first[i], hole[i] = int(cu[p]), [2]int{int(cu[p+1]), int(cu[s])}
		}
	}
	return hole
}

func testAttention(t *testing.T, family Family, sizes []int) {
	r := newHarness(t, 512<<20)
	var cases []attentionCase
	for _, D := range sizes {
		cases = append(cases,
			attentionCase{lengths: []int{1, 63, 64, 65, 130, 17}, H: 4, K: 2, D: D, repeats: 3},
			attentionCase{lengths: []int{301}, H: 3, K: 1, D: D, fused: true},
			attentionCase{lengths: []int{5, 200, 90}, H: 2, K: 2, D: D, window: 50, tail: true, fused: true},
			attentionCase{lengths: []int{1}, H: 2, K: 1, D: D},
			attentionCase{lengths: []int{1, 63, 64, 65, 130, 17}, H: 4, K: 2, D: D, repeats: 3, cap: 1.5},
			attentionCase{lengths: []int{5, 200, 90}, H: 2, K: 2, D: D, window: 50, tail: true, fused: true, cap: 50})
	}
	if slices.Contains(sizes, 64) {
		cases = append(cases, attentionCase{lengths: []int{700, 33, 400}, H: 8, K: 2, D: 64},
			attentionCase{lengths: []int{257, 255}, H: 2, K: 2, D: 128, window: 1},
			attentionCase{lengths: []int{1000}, H: 2, K: 1, D: 128, window: 128})
	}
	for _, D := range sizes {
		if D > PrefixedHead {
			continue
		}
		cases = append(cases,
			attentionCase{lengths: []int{5, 3, 4}, prefix: []int32{-1, 0, 0}, H: 4, K: 2, D: D},
			attentionCase{lengths: []int{131, 70, 1, 33}, prefix: []int32{-1, 0, 0, 0}, H: 3, K: 1, D: D, fused: true},
			attentionCase{lengths: []int{17, 7, 9, 40, 129, 200}, prefix: []int32{-1, 0, 0, -1, 3, 3}, H: 2, K: 2,
				D: D},
			attentionCase{lengths: []int{6, 300, 65, 63, 2, 1, 1, 11}, prefix: []int32{-1, -1, 1, 1, -1, 4, 4, -1},
				H: 4,
				K: 2, D: D, fused: true},
			attentionCase{lengths: []int{1, 1, 1, 2, 3, 2, 5, 4, 9, 8}, prefix: []int32{-1, 0, 0, -1, 3, 3, -1, 6, 6,
				6},
				H: 2, K: 1, D: D})
	}
	for _, c := range cases {
		M, cu, first := c.pack()
		hole := c.holes(cu, first)
		H, K, D := c.H, c.K, c.D
		plan := NewAttention
		if c.prefix != nil {
			plan = NewPrefixedAttention
		}
		a, err := plan(family, M, H, K, D)
		if err != nil {
			t.Fatal(err)
		}
		if c.cap > 0 {
			a = a.Capped()
		}
		ldq, ldk, ldo := H*D, K*D, H*D
		if c.fused {
			ldq, ldk = (H+2*K)*D, (H+2*K)*D
		}
		scale := 1 / math.Sqrt(float64(D))
		var q, k, v, do []float64
		strip := func(b []byte, ld, w int) []float64 { // rows of a matrix without what lies between them
			f := bfFloats(b)
			out := make([]float64, 0, M*w)
			for m := range M {
				out = append(out, f[m*ld:m*ld+w]...)
			}
			return out
		}
		split := a.Splits
		out := r.repeat(func() [][]byte {
			var Q, Kp, V, DQ, DK, DV gpu.Ptr
			var qb, kb, vb, db []uint16
			if c.fused {
				x, f := r.random(M*ldq, 1)
				q, k, v = nil, nil, nil
				for m := range M {
					row := f[m*ldq:]
					q, k, v = append(q, row[:H*D]...), append(k, row[H*D:(H+K)*D]...),
						append(v, row[(H+K)*D:(H+2*K)*D]...)
				}
				Q, DQ = in(r, "qkv", x), r.out("dqkv", int64(2*M*ldq))
				Kp, V, DK, DV = Q.Add(int64(2*H*D)), Q.Add(int64(2*(H+K)*D)), DQ.Add(int64(2*H*D)),
					DQ.Add(int64(2*(H+K)*D))
			} else {
				qb, q = r.random(M*ldq, 1)
				kb, k = r.random(M*ldk, 1)
				vb, v = r.random(M*ldk, 1)
				Q, Kp, V = in(r, "q", qb), in(r, "k", kb), in(r, "v", vb)
				DQ, DK, DV = r.out("dq", int64(2*M*ldq)), r.out("dk", int64(2*M*ldk)), r.out("dv", int64(2*M*ldk))
			}
			db, do = r.random(M*ldo, 1)
			DO, O, LSE, DELTA := in(r, "do", db), r.out("o", int64(2*M*ldo)), r.out("lse", int64(4*H*M)),
				r.out("delta", int64(4*H*M))
			CU := in(r, "cu", cu)
			PREFIX := gpu.Ptr(0)
			if c.prefix != nil {
				PREFIX = in(r, "prefix", c.prefix)
			}
			part := gpu.Ptr(0)
			if split > 1 {
				part = r.out("part", a.Part)
			}
			f, back := r.prefixed(a, attentionBuffers{Q, Kp, V, DO, O, LSE, DELTA, DQ, DK, DV, part, CU, M,
				len(cu) - 1, H, K, D, ldq, ldk, ldo, c.window, float32(scale), float32(c.cap)}, PREFIX)
			for _, l := range append([]*gpu.Launch{f}, back...) {
				r.ok(l.Run(r.s))
			}
			r.ok(r.s.Synchronize())
			f.Free()
			for _, l := range back {
				l.Free()
			}
			size := func(ld int) int { return 2 * M * ld }
			if c.fused { // the last row ends with its own part, the matrix does not go on behind dk and dv
				all := get[byte](r, DQ, size(ldq))
				return [][]byte{get[byte](r, O, size(ldo)), get[byte](r, LSE, 4*H*M), all,
					append(all[2*H*D:], make([]byte, 2*H*D)...), append(all[2*(H+K)*D:], make([]byte, 2*(H+K)*D)...)}
			}
			return [][]byte{get[byte](r, O, size(ldo)), get[byte](r, LSE, 4*H*M), get[byte](r, DQ, size(ldq)),
				get[byte](r, DK, size(ldk)), get[byte](r, DV, size(ldk))}
		})
		want, low := attend(q, k, v, do, first, hole, H, K, D, scale, c.cap, false),
			attend(q, k, v, do, first, hole, H, K, D, scale, c.cap, true)
		name := fmt.Sprintf("%+v splits %d ", c, split)
		bf := func(x []float64) []float64 {
			y := make([]float64, len(x))
			for i := range x {
				y[i] = round(x[i])
			}
			return y
		}
		near(t, name+"o", strip(out[0], ldo, H*D), want.o, bf(low.o))
		near(t, name+"lse", f32Floats(out[1]), want.lse, low.lse)
		near(t, name+"dq", strip(out[2], ldq, H*D), want.dq, bf(low.dq))
		near(t, name+"dk", strip(out[3], ldk, K*D), want.dk, bf(low.dk))
		near(t, name+"dv", strip(out[4], ldk, K*D), want.dv, bf(low.dv))
		if t.Failed() {
			t.Logf("stopped at %s", name)
			return
		}
	}
	t.Logf("%d cases", len(cases))
}
