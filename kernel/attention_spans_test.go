package kernel_test

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// spansOf returns kernel.Attention's spans of M tokens: each span is the row of its first token and its length.
func spansOf(M int, spans [][2]int) []int32 {
	all := make([]int32, 2*M)
	for _, s := range spans {
		for i := range s[1] {
			all[2*(s[0]+i)], all[2*(s[0]+i)+1] = int32(i), int32(s[1]-1-i)
		}
	}
	return all
}

// spanCases are sequences with spans: at their ends, across tiles of queries and of keys, side by side, longer and
// shorter than a window.
var spanCases = []struct {
	layout
	spans [][2]int
}{
	{layout{name: "one span", cuQ: []int32{0, 12}, heads: 2, kvs: 1, head: 5}, [][2]int{{3, 5}}},
	{layout{name: "packed", cuQ: []int32{0, 9, 9, 20}, heads: 4, kvs: 2, head: 6},
		[][2]int{{0, 4}, {4, 5}, {12, 8}}},
	{layout{name: "window", cuQ: []int32{0, 30}, heads: 2, kvs: 2, head: 8, window: 4}, [][2]int{{2, 9}, {20, 3}}},
	{layout{name: "tiles", cuQ: []int32{0, 7, 190}, heads: 2, kvs: 1, head: 2}, [][2]int{{10, 130}, {160, 30}}},
	{layout{name: "tiles with a window", cuQ: []int32{0, 180}, heads: 1, kvs: 1, head: 2, window: 60},
		[][2]int{{30, 120}}},
	{layout{name: "cap", cuQ: []int32{0, 20}, heads: 2, kvs: 1, head: 72, cap: 1.5}, [][2]int{{5, 10}}},
	{layout{name: "even sequences", cuQ: []int32{0, 19, 39, 56, 74}, heads: 4, kvs: 4, head: 6},
		[][2]int{{2, 9}, {20, 19}, {56, 5}}},
}

// TestAttentionSpans compares attention over spans with the sum over visible keys in float64, and checks what every
// kernel has to do.
func TestAttentionSpans(t *testing.T) {
	for _, c := range spanCases {
		M := int(c.cuQ[len(c.cuQ)-1])
		k, spans := c.kernel(), spansOf(M, c.spans)
		k.Spans = true
		width, keyWidth := c.heads*c.head, c.kvs*c.head
		t.Run(c.name, func(t *testing.T) {
			q, key, v := normal64(1, M*width), normal64(2, M*keyWidth), normal64(3, M*keyWidth)
			got := evaluate(t, k, f64s(q, M, width), f64s(key, M, keyWidth), f64s(v, M, keyWidth), i32s(c.cuQ),
				i32s(c.cuQ), i32s(spans))
			near(t, "o", got[0].F64(), naiveSpans(c.layout, spans, q, key, v), 1e-12)
		})
		q, kv := kerneltest.Normal(M, width), kerneltest.Normal(M, keyWidth)
		qkv, stat := kerneltest.Normal(M, c.width()), kerneltest.Uniform(2, 3, c.heads, M)
		cu, s := kerneltest.Ints(c.cuQ, len(c.cuQ)), kerneltest.Ints(spans, len(spans))
		kerneltest.Run(t,
			kerneltest.Case{Name: c.name + " kernel", Kernel: k, In: []kerneltest.Input{q, kv, kv, cu, cu, s},
				Bound: 5e-7},
			kerneltest.Case{Name: c.name + " backward", Kernel: kernel.AttentionGrad(k),
				In: []kerneltest.Input{q, kv, kv, q, stat, q, cu, cu, s}, Bound: 1.3e-6},
			kerneltest.Case{Name: c.name + " fused", Kernel: kernel.AttentionQKV(k), In: []kerneltest.Input{qkv, cu, s},
				Bound: 5e-7},
		)
	}
}

// naiveSpans returns attention's result by its definition.
func naiveSpans(l layout, spans []int32, q, k, v []float64) []float64 {
	width, keyWidth := l.heads*l.head, l.kvs*l.head
	out := make([]float64, len(q))
	for s := range len(l.cuQ) - 1 {
		for i := int(l.cuQ[s]); i < int(l.cuQ[s+1]); i++ {
			first, end := int(l.cuQ[s]), min(i+1+int(spans[2*i+1]), int(l.cuQ[s+1]))
			if l.window > 0 {
				first = max(first, i+1-l.window)
			}
			for h := range l.heads {
				kv, sum := h/(l.heads/l.kvs)*l.head, 0.
				to := out[i*width+h*l.head:][:l.head]
				for j := first; j < end; j++ {
					score := 0.
					for d := range l.head {
						score += q[i*width+h*l.head+d] * k[j*keyWidth+kv+d]
					}
					if score /= math.Sqrt(float64(l.head)); l.cap > 0 {
						score = l.cap * math.Tanh(score/l.cap)
					}
					p := math.Exp(score)
					sum += p
					for d := range to {
						to[d] += p * v[j*keyWidth+kv+d]
					}
				}
				for d := range to {
					to[d] /= sum
				}
			}
		}
	}
	return out
}

// TestAttentionHostileSpans checks that numbers which are no span reach nothing outside of the tensors.
func TestAttentionHostileSpans(t *testing.T) {
	x := f32s(normal32(1, 40), 10, 4)
	for _, cu := range [][]int32{{0, 4, 7, 10}, {-5, 3, 1 << 30, 2}, {9, 9, 0, 10}} {
		for _, n := range []int32{-7, 5, math.MaxInt32, math.MinInt32} {
			spans := make([]int32, 20)
			for i := range spans {
				spans[i] = n * int32(i%3)
			}
			k := kernel.Attention{Heads: 1, KVHeads: 1, Scale: 1, Window: 3, Spans: true}
			out := evaluate(t, k, x, x, x, i32s(cu), i32s(cu), i32s(spans))
			evaluate(t, kernel.AttentionGrad(k), x, x, x, out[0], out[1], x, i32s(cu), i32s(cu), i32s(spans))
		}
	}
	rows, bounds, spans := kernel.T(kernel.F32, 3, 4), kernel.T(kernel.I32, 2), kernel.T(kernel.I32, 6)
	for what, c := range map[string]struct {
		k    kernel.Attention
		last kernel.Type
		good bool
	}{
		"right":         {kernel.Attention{Heads: 1, KVHeads: 1, Scale: 1, Spans: true}, spans, true},
		"too few":       {kernel.Attention{Heads: 1, KVHeads: 1, Scale: 1, Spans: true}, bounds, false},
		"with prefixes": {kernel.Attention{Heads: 1, KVHeads: 1, Scale: 1, Spans: true, Prefixes: true}, spans, false},
	} {
		if _, err := c.k.Shape([]kernel.Type{rows, rows, rows, bounds, bounds, c.last}); (err == nil) != c.good {
			t.Error(what, err)
		}
	}
}
