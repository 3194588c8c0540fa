//go:build gpu && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

func TestKVAppend(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, W := range []int{64, 192, 33, 2056} {
		for _, c := range []struct {
			P  int
			at []int32
		}{{9, []int32{4}}, {9, []int32{4, 5, 6, 7, 8}}, {9, []int32{8, 0, 3, -1, 6}}, {9, []int32{7, 8, 9}},
			{9, []int32{-1, 1 << 30, -1 << 31}}, {300, []int32{299, 100, 5}}} {
			P, T := c.P, len(c.at)
			var old, rows []float64
			out := r.repeat(func() [][]byte {
				cb, cf := r.random(P*W, 1)
				rb, rf := r.random(T*W, 1)
				old, rows = cf, rf
				C, R := in(r, "cache", cb), in(r, "rows", rb)
				r.run(KVAppend(T, W), C, R, in(r, "at", c.at), i32(P), i32(W))
				return [][]byte{get[byte](r, C, 2*P*W), get[byte](r, R, 2*T*W)}
			})
			want := slices.Clone(old)
			for i, to := range c.at {
				if to >= 0 && int(to) < P {
					copy(want[int(to)*W:], rows[i*W:][:W])
				}
			}
			if !slices.Equal(bfFloats(out[0]), want) {
				t.Errorf("%v width %d: the cache is not what it should be", c, W)
			}
			if !slices.Equal(bfFloats(out[1]), rows) {
				t.Errorf("%v width %d: the rows changed", c, W)
			}
		}
	}
}

type cachedCase struct {
	queries, keys []int // of each sequence
	after, spare  int   // query rows and keys in no sequence
	H, K, D       int
	window        int
	cap           float64
}

// attendCached returns attention as it is defined, in float64; with low, scores and probabilities are rounded to bf16.
func (c cachedCase) attendCached(q, k, v []float64, M int, low bool) (o, lse []float64) {
	rd := func(x float64) float64 { return x }
	if low {
		rd = round
	}
	o, lse = make([]float64, M*c.H*c.D), make([]float64, c.H*M)
	scale := 1 / math.Sqrt(float64(c.D))
	row, first := 0, 0
	for s, nq := range c.queries {
		for i := range nq {
			for h := range c.H {
				kv, end := h/(c.H/c.K), first+c.keys[s]-(nq-1-i)
				begin := first
				if c.window > 0 {
					begin = max(begin, end-c.window)
				}
				if begin >= end {
					continue
				}
				p, top, sum := make([]float64, end-begin), math.Inf(-1), 0.
				for j := range p {
					for d := range c.D {
						p[j] += q[((row+i)*c.H+h)*c.D+d] * k[((begin+j)*c.K+kv)*c.D+d]
					}
					p[j] = rd(rd(p[j]) * scale)
					if c.cap > 0 {
						p[j] = rd(c.cap * math.Tanh(p[j]/c.cap))
					}
					top = max(top, p[j])
				}
				for j := range p {
					sum += math.Exp(p[j] - top)
				}
				lse[h*M+row+i] = top + math.Log(sum)
				for j := range p {
					w := rd(math.Exp(p[j]-top) / sum)
					for d := range c.D {
						o[((row+i)*c.H+h)*c.D+d] += w * v[((begin+j)*c.K+kv)*c.D+d]
					}
				}
			}
		}
		row, first = row+nq, first+c.keys[s]
	}
	return o, lse
}

func TestAttentionCached(t *testing.T) {
	r := newHarness(t, 64<<20)
	var cases []cachedCase
	for _, D := range []int{8, 16, 24, 32, 40, 64, 80, 96, 128, 256, 320, 512} {
		cases = append(cases,
			cachedCase{queries: []int{1}, keys: []int{1}, spare: 3, H: 2, K: 1, D: D},
			cachedCase{queries: []int{1}, keys: []int{517}, spare: 11, H: 6, K: 2, D: D},
			cachedCase{queries: []int{37}, keys: []int{101}, after: 27, spare: 155, H: 4, K: 4, D: D},
			cachedCase{queries: []int{5, 0, 1, 64}, keys: []int{5, 9, 300, 64}, after: 1, H: 3, K: 1, D: D, window: 50},
			cachedCase{queries: []int{1, 9}, keys: []int{301, 40}, H: 4, K: 2, D: D, window: 100, cap: 1.5})
	}
	cases = append(cases,
		cachedCase{queries: []int{4}, keys: []int{2}, H: 2, K: 2, D: 64}, // the first two see nothing
		cachedCase{queries: []int{3}, keys: []int{40}, H: 2, K: 2, D: 64, window: 1},
		cachedCase{queries: []int{64}, keys: []int{2000}, H: 9, K: 3, D: 64},
		cachedCase{queries: []int{1, 0, 1, 1}, keys: []int{900, 60, 3, 4500}, spare: 5, H: 8, K: 1, D: 128},
		cachedCase{queries: []int{1, 1}, keys: []int{900, 4500}, H: 4, K: 2, D: 64, window: 200, cap: 2})
	divided := 0
	for _, c := range cases {
		M, N, cuq, cuk := c.after, c.spare, []int32{0}, []int32{0}
		for s := range c.queries {
			M, N = M+c.queries[s], N+c.keys[s]
			cuq, cuk = append(cuq, cuq[s]+int32(c.queries[s])), append(cuk, cuk[s]+int32(c.keys[s]))
		}
		g, err := AttentionCached(M, c.H, c.D, c.cap > 0)
		r.ok(err)
		split, splits, err := NewAttentionSplit(M, c.H, c.D, slices.Max(c.keys), c.cap > 0)
		r.ok(err)
		if splits {
			divided++
		}
		var q, k, v []float64
		out := r.repeat(func() [][]byte {
			var qb, kb, vb []uint16
			qb, q = r.random(M*c.H*c.D, 1)
			kb, k = r.random(N*c.K*c.D, 1)
			vb, v = r.random(N*c.K*c.D, 1)
			for i := (N - c.spare) * c.K * c.D; i < N*c.K*c.D; i++ { // what no query may see
				kb[i], vb[i] = 0x7fc0, 0x7fc0
			}
			O, LSE := r.out("o", int64(2*M*c.H*c.D)), r.out("lse", int64(4*c.H*M))
			args := []any{O, LSE, in(r, "q", qb), in(r, "k", kb), in(r, "v", vb), in(r, "cuq", cuq), in(r, "cuk", cuk),
				i32(M), i32(N), i32(len(cuq) - 1), i32(c.H), i32(c.K), i32(c.D), float32(1 / math.Sqrt(float64(c.D))),
				i32(c.window)}
			if c.cap > 0 {
				args = append(args, float32(c.cap))
			}
			r.run(g, args...)
			all := [][]byte{get[byte](r, O, 2*M*c.H*c.D), get[byte](r, LSE, 4*c.H*M)}
			if splits {
				part, stat := r.out("part", split.PartBytes), r.out("stat", split.Stat)
				args[0], args[1] = part, stat
				r.run(split.Part, slices.Insert(args, 13, any(i32(split.Span)))...)
				O, LSE := r.out("o of the split form", int64(2*M*c.H*c.D)),
					r.out("lse of the split form", int64(4*c.H*M))
				r.run(split.Join, O, LSE, part, stat, i32(M), i32(c.H), i32(c.D), i32(split.Z))
				all = append(all, get[byte](r, O, 2*M*c.H*c.D), get[byte](r, LSE, 4*c.H*M))
			}
			return all
		})
		name := fmt.Sprintf("%+v ", c)
		o, lse := c.attendCached(q, k, v, M, false)
		plain, plainLSE := c.attendCached(q, k, v, M, true)
		for i := range plain {
			plain[i] = round(plain[i])
		}
		near(t, name+"o", bfFloats(out[0]), o, plain)
		near(t, name+"lse", f32Floats(out[1]), lse, plainLSE)
		if splits {
			near(t, name+"o, split", bfFloats(out[2]), o, plain)
			near(t, name+"lse, split", f32Floats(out[3]), lse, plainLSE)
		}
		for row := M - c.after; row < M; row++ {
			for i, x := range bfFloats(out[0])[row*c.H*c.D:][:c.H*c.D] {
				if x != 0 {
					t.Fatalf("%srow %d, in no sequence, has %v at %d", name, row, x, i)
				}
			}
		}
	}
	if t.Logf("%d cases, %d in the split form too", len(cases), divided); divided < 20 {
		t.Errorf("the keys are divided in only %d cases", divided)
	}
}

func BenchmarkAttentionCached(b *testing.B) {
	r := newHarness(b, 64<<20)
	for _, c := range [][2]int{{1, 512}, {1, 2048}, {64, 512}} {
		M, N, H, K, D := c[0], c[1], 9, 3, 64
		r.reset()
		g, err := AttentionCached(M, H, D, false)
		r.ok(err)
		qb, _ := r.random(M*H*D, 1)
		kb, _ := r.random(N*K*D, 1)
		cu := func(n int) gpu.Ptr { return in(r, "cu", []int32{0, int32(n)}) }
		l := r.launch(g, r.out("o", int64(2*M*H*D)), r.out("lse", int64(4*H*M)), in(r, "q", qb), in(r, "k", kb),
			in(r, "v", kb), cu(M), cu(N),
			i32(M), i32(N), i32(1), i32(H), i32(K), i32(D), float32(0.125), i32(0))
		b.Run(fmt.Sprintf("%dx%d", M, N), func(b *testing.B) {
			for range b.N {
				r.ok(l.Run(r.s))
			}
			r.ok(r.s.Synchronize())
		})
		l.Free()
	}
}
