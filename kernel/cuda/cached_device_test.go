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
			P, each int // rows of the cache; places of a row
			at      []int32
		}{{9, 1, []int32{4}}, {9, 1, []int32{4, 5, 6, 7, 8}}, {9, 1, []int32{8, 0, 3, -1, 6}},
			{9, 1, []int32{7, 8, 9}}, {9, 1, []int32{-1, 1 << 30, -1 << 31}}, {300, 1, []int32{299, 100, 5}},
			{9, 3, []int32{8, 0, 3, -1, -1, 6, 2, 1, 5}}, {40, 2, []int32{39, -1, 7, 8}}} {
			P, T := c.P, len(c.at)/c.each
			var old, rows []float64
			out := r.repeat(func() [][]byte {
				cb, cf := r.random(P*W, 1)
				rb, rf := r.random(T*W, 1)
				old, rows = cf, rf
				C, R := in(r, "cache", cb), in(r, "rows", rb)
				r.run(KVAppend(T, W), C, R, in(r, "at", c.at), i32(P), i32(W), i32(c.each))
				return [][]byte{get[byte](r, C, 2*P*W), get[byte](r, R, 2*T*W)}
			})
			want := slices.Clone(old)
			for i, to := range c.at {
				if to >= 0 && int(to) < P {
					copy(want[int(to)*W:], rows[i/c.each*W:][:W])
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
	for _, D := range []int{8, 40, 64, 72, 128} { // as many heads of queries as a block takes, more, and far more
		cases = append(cases,
			cachedCase{queries: []int{1}, keys: []int{517}, spare: 11, H: 16, K: 2, D: D},
			cachedCase{queries: []int{1, 3}, keys: []int{129, 1400}, after: 2, spare: 3, H: 9, K: 1, D: D},
			cachedCase{queries: []int{2, 1}, keys: []int{17, 16}, spare: 3, H: 32, K: 2, D: D, window: 9},
			cachedCase{queries: []int{1, 1, 1}, keys: []int{1, 2600, 641}, spare: 3, H: 20, K: 1, D: D, cap: 1.5})
	}
	divided, together := 0, 0
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
		var grouped []AttentionSplit
		for _, longest := range []int{0, slices.Max(c.keys)} {
			a, ok := NewAttentionGrouped("bf16", M, c.H, c.K, c.D, longest, c.cap > 0)
			if ok && (longest == 0 || a.Z > 1) {
				grouped = append(grouped, a)
				together++
			}
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
				args = slices.Insert(args, 13, any(i32(split.Span)))
				r.run(split.Part, args...)
				O, LSE := r.out("o of the split form", int64(2*M*c.H*c.D)),
					r.out("lse of the split form", int64(4*c.H*M))
				r.run(split.Join, O, LSE, part, stat, i32(M), i32(c.H), i32(c.D), i32(split.Z))
				all = append(all, get[byte](r, O, 2*M*c.H*c.D), get[byte](r, LSE, 4*c.H*M))
				args = slices.Delete(args, 13, 14)
			}
			for _, a := range grouped {
				O, LSE := r.out("o of the grouped form", int64(2*M*c.H*c.D)),
					r.out("lse of the grouped form", int64(4*c.H*M))
				args[0], args[1] = O, LSE
				if a.Z == 1 {
					r.run(a.Part, args...)
				} else {
					part, stat := r.out("part", a.PartBytes), r.out("stat", a.Stat)
					args[0], args[1] = part, stat
					r.run(a.Part, slices.Insert(slices.Clone(args), 13, any(i32(a.Span)))...)
					r.run(a.Join, O, LSE, part, stat, i32(M), i32(c.H), i32(c.D), i32(a.Z))
				}
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
		first := len(out) - 2*len(grouped)
		for i := range grouped {
			name := fmt.Sprintf("%s%s, %d parts, ", name, grouped[i].Part.Entry, grouped[i].Z)
			near(t, name+"o", bfFloats(out[first+2*i]), o, plain)
			near(t, name+"lse", f32Floats(out[first+2*i+1]), lse, plainLSE)
		}
		for row := M - c.after; row < M; row++ {
			for i, x := range bfFloats(out[0])[row*c.H*c.D:][:c.H*c.D] {
				if x != 0 {
					t.Fatalf("%srow %d, in no sequence, has %v at %d", name, row, x, i)
				}
			}
		}
	}
	if t.Logf("%d cases, %d in the split form too, %d launches of the grouped form", len(cases), divided,
		together); divided < 20 || together < 40 {
		t.Errorf("the keys are divided in only %d cases, heads grouped in only %d", divided, together)
	}
}

// TestAttentionGroupedAlone: a row has the same bits alone as among others, wherever its keys lie.
func TestAttentionGroupedAlone(t *testing.T) {
	r := newHarness(t, 512<<20)
	for _, c := range []struct{ H, K, D, keys int }{{32, 4, 64, 513}, {9, 3, 64, 100}, {32, 8, 128, 1500},
		{12, 1, 128, 640}} {
		const M = 37
		out := r.repeat(func() [][]byte {
			qb, _ := r.random(M*c.H*c.D, 1)
			kb, _ := r.random((M*c.keys)*c.K*c.D, 1)
			vb, _ := r.random((M*c.keys)*c.K*c.D, 1)
			q, k, v := in(r, "q", qb), in(r, "k", kb), in(r, "v", vb)
			run := func(row, rows int) []byte {
				cuq, cuk := []int32{}, []int32{}
				for i := range rows {
					first := (row + i) * c.keys
					cuq = append(cuq, int32(i), int32(i+1))
					cuk = append(cuk, int32(first), int32(first+c.keys-3*(row+i)%c.keys%90))
				}
				a, _ := NewAttentionGrouped("bf16", rows, c.H, c.K, c.D, c.keys, false)
				O, LSE := r.out("o", int64(2*rows*c.H*c.D)), r.out("lse", int64(4*c.H*rows))
				args := []any{O, LSE, q.Add(int64(2 * row * c.H * c.D)), k, v, in(r, "cuq", cuq), in(r, "cuk", cuk),
					i32(rows), i32(M * c.keys), i32(len(cuq) - 1), i32(c.H), i32(c.K), i32(c.D), float32(0.125), i32(0)}
				if a.Z > 1 {
					part, stat := r.out("part", a.PartBytes), r.out("stat", a.Stat)
					args[0], args[1] = part, stat
					r.run(a.Part, slices.Insert(args, 13, any(i32(a.Span)))...)
					r.run(a.Join, O, LSE, part, stat, i32(rows), i32(c.H), i32(c.D), i32(a.Z))
				} else {
					r.run(a.Part, args...)
				}
				return get[byte](r, O, 2*rows*c.H*c.D)
			}
			return [][]byte{run(0, M), run(0, 1), run(17, 1), run(M-1, 1)}
		})
		width := 2 * c.H * c.D
		for i, row := range []int{0, 17, M - 1} {
			if !slices.Equal(out[0][row*width:][:width], out[i+1]) {
				t.Errorf("%+v: row %d has other bits alone", c, row)
			}
		}
	}
}

// groupedForms are attention of a token of each of some sequences, beside a copy of their keys' and values' bytes.
func (f *forms) groupedForms() {
	for _, c := range []struct{ M, H, K, D, keys int }{{1, 32, 4, 64, 513}, {8, 32, 4, 64, 513}, {64, 32, 4, 64, 513},
		{256, 32, 4, 64, 513}, {1, 32, 8, 128, 2049}, {8, 32, 8, 128, 2049}, {64, 32, 8, 128, 2049}} {
		for _, old := range []bool{true, false} {
			f.reset()
			bytes := 4 * float64(c.M*c.keys*c.K*c.D)
			copies := min(22, max(1, int(200e6/bytes)))
			cuq, cuk := []int32{0}, []int32{0}
			for i := range c.M {
				cuq, cuk = append(cuq, int32(i+1)), append(cuk, int32((i+1)*c.keys))
			}
			N := c.M * c.keys
			a, ok := NewAttentionGrouped("bf16", c.M, c.H, c.K, c.D, c.keys, false)
			if old {
				var err error
				if a, ok, err = NewAttentionSplit(c.M, c.H, c.D, c.keys, false); err != nil {
					continue
				}
			}
			if !ok {
				continue
			}
			var work []*gpu.Launch
			q, o := f.randomBF16("q", int64(c.M*c.H*c.D)), f.out("o", int64(2*c.M*c.H*c.D))
			lse := f.out("lse", int64(4*c.M*c.H))
			cu1, cu2 := in(f.harness, "cuq", cuq), in(f.harness, "cuk", cuk)
			part, stat := f.out("part", a.PartBytes+256), f.out("stat", a.Stat+256)
			for range copies {
				k, v := f.randomBF16("k", int64(N*c.K*c.D)), f.randomBF16("v", int64(N*c.K*c.D))
				args := []any{o, lse, q, k, v, cu1, cu2, i32(c.M), i32(N), i32(c.M), i32(c.H),
					i32(c.K), i32(c.D), float32(0.125), i32(0)}
				if a.Z > 1 {
					args[0], args[1] = part, stat
					work = append(work, f.launch(a.Part, slices.Insert(args, 13, any(i32(a.Span)))...),
						f.launch(a.Join, o, lse, part, stat, i32(c.M), i32(c.H), i32(c.D), i32(a.Z)))
				} else {
					work = append(work, f.launch(a.Part, args...))
				}
			}
			form := timed{fmt.Sprintf("%s x%d, %d rows over %d keys", a.Part.Entry, a.Z, c.M, c.keys),
				f.time(work...) / float64(copies), f.bytes(bytes)}
			fmt.Printf("%-58s %9.1f us, %5.1f %% of a copy\n", form.name, 1e6*form.took, form.share())
		}
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
