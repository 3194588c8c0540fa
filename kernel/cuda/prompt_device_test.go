//go:build gpu && linux

package cuda

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// promptCase is a piece of a prompt: queries are the last of so many keys, in a cache that holds others before and
// behind.
type promptCase struct {
	queries, keys int
	lead, after   int // query rows in front of and behind the sequence's
	H, K, D       int
	window        int
	cap           float64
}

// attendPrompt runs a case in a cache with so many rows that are not finite before and behind its own: o and lse.
func (r *harness) attendPrompt(f Family, c promptCase, before, behind int, q, k, v []uint16) (o, lse []byte) {
	r.t.Helper()
	M, N := c.lead+c.queries+c.after, before+c.keys+behind
	a, err := NewAttentionPrompt(f, M, c.H, c.D, c.cap > 0)
	r.ok(err)
	around := func(x []uint16, width int) []uint16 {
		all := make([]uint16, N*width)
		for i := range all {
			all[i] = 0x7fc0
		}
		copy(all[before*width:], x)
		return all
	}
	Q, K, V := in(r, "q", q), in(r, "k", around(k, c.K*c.D)), in(r, "v", around(v, c.K*c.D))
	O, LSE := r.out("o", int64(2*M*c.H*c.D)), r.out("lse", int64(4*c.H*M))
	cuq, cuk := in(r, "cuq", []int32{int32(c.lead), int32(c.lead + c.queries)}),
		in(r, "cuk", []int32{int32(before), int32(before + c.keys)})
	args := []any{O, LSE, Q, K, V}
	if f == Hopper {
		args = []any{O, LSE, r.headMap(Q, M, c.H, c.D, c.H*c.D, a.BoxesQ), r.headMap(K, N, c.K, c.D, c.K*c.D, a.BoxesK),
			r.headMap(V, N, c.K, c.D, c.K*c.D, a.BoxesK)}
	}
	args = append(args, cuq, cuk, i32(M), i32(N), i32(c.H), i32(c.K), i32(c.D), float32(1/math.Sqrt(float64(c.D))),
		i32(c.window))
	if c.cap > 0 {
		args = append(args, float32(c.cap))
	}
	r.run(a.Geometry, args...)
	return get[byte](r, O, 2*M*c.H*c.D), get[byte](r, LSE, 4*c.H*M)
}

// TestAttentionPrompt: pieces of prompts are attention as it is defined, their bits do not depend on where in the cache
// they lie, and nothing that is not finite reaches them from there.
func TestAttentionPrompt(t *testing.T) {
	t.Run("mma", func(t *testing.T) {
		testAttentionPrompt(t, MMA,
			[]int{8, 32, 40, 64, 72, 96, 128, 192, 256, 320, 512})
	})
	t.Run("hopper", func(t *testing.T) {
		if n, _ := gpu.Devices(); n > 0 {
			if p, err := gpu.DeviceProperties(0); err != nil || p.SM() != 90 {
				t.Skipf("the wgmma kernels need compute capability 9.0, this is %d.%d", p.Major, p.Minor)
			}
		}
		testAttentionPrompt(t, Hopper, []int{40, 64, 72, 96, 128})
	})
}

func testAttentionPrompt(t *testing.T, family Family, sizes []int) {
	r := newHarness(t, 256<<20)
	var cases []promptCase
	for _, D := range sizes {
		cases = append(cases,
			promptCase{queries: 65, keys: 65, H: 2, K: 1, D: D},
			promptCase{queries: 100, keys: 300, after: 412, H: 3, K: 1, D: D},
			promptCase{queries: 257, keys: 801, lead: 5, after: 3, H: 4, K: 2, D: D, cap: 1.5},
			promptCase{queries: 193, keys: 384, H: 2, K: 2, D: D, window: 50},
			promptCase{queries: 130, keys: 640, lead: 70, H: 2, K: 2, D: D, window: 200, cap: 50})
	}
	cases = append(cases,
		promptCase{queries: 512, keys: 2048, H: 4, K: 2, D: 64},
		promptCase{queries: 300, keys: 77, H: 2, K: 1, D: 128}, // the first 223 see nothing
		promptCase{queries: 130, keys: 400, H: 2, K: 2, D: 64, window: 1},
		promptCase{queries: 1, keys: 900, lead: 400, after: 400, H: 2, K: 2, D: 64},
		promptCase{queries: 0, keys: 90, after: 100, H: 2, K: 2, D: 64})
	for _, c := range cases {
		M := c.lead + c.queries + c.after
		var q, k, v []float64
		out := r.repeat(func() [][]byte {
			qb, qf := r.random(M*c.H*c.D, 1)
			kb, kf := r.random(c.keys*c.K*c.D, 1)
			vb, vf := r.random(c.keys*c.K*c.D, 1)
			q, k, v = qf, kf, vf
			o, lse := r.attendPrompt(family, c, 0, 0, qb, kb, vb)
			for _, at := range [][2]int{{1, 7}, {130, 300}} {
				o2, lse2 := r.attendPrompt(family, c, at[0], at[1], qb, kb, vb)
				if !bytes.Equal(o, o2) || !bytes.Equal(lse, lse2) {
					t.Errorf("%+v: other bits with %d rows before and %d behind", c, at[0], at[1])
				}
			}
			return [][]byte{o, lse}
		})
		rows := c.queries + c.after
		of := cachedCase{queries: []int{c.queries}, keys: []int{c.keys}, H: c.H, K: c.K, D: c.D, window: c.window,
			cap: c.cap}
		o, lse := of.attendCached(q[c.lead*c.H*c.D:], k, v, rows, false)
		plain, plainLSE := of.attendCached(q[c.lead*c.H*c.D:], k, v, rows, true)
		for i := range plain {
			plain[i] = round(plain[i])
		}
		name, gotO, allLSE := fmt.Sprintf("%+v ", c), bfFloats(out[0]), f32Floats(out[1])
		var gotLSE []float64
		for h := range c.H {
			gotLSE = append(gotLSE, allLSE[h*M+c.lead:][:rows]...)
		}
		near(t, name+"o", gotO[c.lead*c.H*c.D:], o, plain)
		near(t, name+"lse", gotLSE, lse, plainLSE)
		for row := range M {
			if seen := row >= c.lead && row < c.lead+c.queries && c.keys-(c.lead+c.queries-1-row) > 0; seen {
				continue
			}
			for i, x := range gotO[row*c.H*c.D:][:c.H*c.D] {
				if x != 0 || allLSE[i/c.D*M+row] != 0 {
					t.Fatalf("%srow %d sees no key and has %v at %d, lse %v", name, row, x, i, allLSE[i/c.D*M+row])
				}
			}
		}
	}
	t.Logf("%d cases", len(cases))
}

// BenchmarkAttentionPrompt is a piece of 512 tokens at the end of so many, beside the kernel for few rows.
func BenchmarkAttentionPrompt(b *testing.B) {
	r := newHarness(b, 256<<20)
	for _, c := range []promptCase{{queries: 512, keys: 512, H: 32, K: 4, D: 64},
		{queries: 512, keys: 4096, H: 32, K: 4, D: 64}, {queries: 512, keys: 4096, H: 32, K: 8, D: 128}} {
		r.reset()
		qb, _ := r.random(c.queries*c.H*c.D, 1)
		kb, _ := r.random(c.keys*c.K*c.D, 1)
		Q, K := in(r, "q", qb), in(r, "k", kb)
		O, LSE := r.out("o", int64(2*c.queries*c.H*c.D)), r.out("lse", int64(4*c.H*c.queries))
		cuq, cuk := in(r, "cuq", []int32{0, int32(c.queries)}), in(r, "cuk", []int32{0, int32(c.keys)})
		tail := []any{float32(1 / math.Sqrt(float64(c.D))), i32(0)}
		few, err := AttentionCached(c.queries, c.H, c.D, false)
		r.ok(err)
		forms := map[string]*gpu.Launch{"few rows": r.launch(few,
			append([]any{O, LSE, Q, K, K, cuq, cuk, i32(c.queries), i32(c.keys), i32(1), i32(c.H), i32(c.K), i32(c.D)},
				tail...)...)}
		sizes := append([]any{cuq, cuk, i32(c.queries), i32(c.keys), i32(c.H), i32(c.K), i32(c.D)}, tail...)
		for _, f := range []Family{MMA, Hopper} {
			a, err := NewAttentionPrompt(f, c.queries, c.H, c.D, false)
			r.ok(err)
			args := []any{O, LSE, Q, K, K}
			if f == Hopper {
				m := r.headMap(K, c.keys, c.K, c.D, c.K*c.D, a.BoxesK)
				args = []any{O, LSE, r.headMap(Q, c.queries, c.H, c.D, c.H*c.D, a.BoxesQ), m, m}
			}
			forms[f.String()] = r.launch(a.Geometry, append(args, sizes...)...)
		}
		flops := 4 * float64(c.D) * float64(c.H) * float64(c.queries) * (float64(c.keys) - float64(c.queries)/2)
		for _, name := range []string{"few rows", "mma.sync", "wgmma"} {
			took := r.measure(func() error { return forms[name].Run(r.s) })
			b.Logf("%-9s %4d queries of %4d keys, %d heads over %d of %3d: %8.1f us, %6.1f TFLOP/s", name, c.queries,
				c.keys, c.H, c.K, c.D, took.Seconds()*1e6, flops/took.Seconds()/1e12)
			forms[name].Free()
		}
	}
}
