package selfcheck

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// attentionCheck is attention over sequences, with keys of the same bounds or of their own.
type attentionCheck struct {
	queries, keys []int // of each sequence
	after         int   // rows in no sequence
	heads, kv, D  int
	window        int
	cap           float64
	longest       int  // kernel.Attention.Longest
	sinks         bool // the last input is a score of each head's without a value
	// prefix is the sequence that each sequence continues, -1 = none; nil = kernel.Attention without Prefixes.
	prefix []int
}

// attentionChecks returns attention and its gradients over packed sequences, and attention over a cache.
func attentionChecks() []check {
	n := newNumbers()
	var all []check
	for _, D := range checkHeads {
		for _, h := range [][2]int{{4, 2}, {3, 1}, {2, 2}} {
			for _, lengths := range [][]int{{1}, {7}, {65}, {129}, {1, 63, 64, 65, 17}} {
				a := attentionCheck{queries: lengths, keys: lengths, heads: h[0], kv: h[1], D: D}
				all = append(all, a.check(n, true))
			}
			for _, of := range prefixedSequences {
				a := attentionCheck{queries: of.lengths, keys: of.lengths, prefix: of.prefix, heads: h[0], kv: h[1],
					D: D}
				all = append(all, a.check(n, true))
			}
			a := attentionCheck{queries: []int{90, 129}, keys: []int{90, 129}, heads: h[0], kv: h[1], D: D, window: 50}
			all = append(all, a.check(n, true))
			for _, c := range []attentionCheck{
				{queries: []int{1}, keys: []int{301}},
				{queries: []int{37}, keys: []int{101}, after: 27},
				{queries: []int{64, 1}, keys: []int{129, 70}, window: 33},
				{queries: []int{70}, keys: []int{300}, after: 3}, // a piece of a prompt
				{queries: []int{201}, keys: []int{260}, after: 200, window: 33},
			} {
				c.heads, c.kv, c.D = h[0], h[1], D
				all = append(all, c.check(n, false))
			}
		}
	}
	n = newNumbers()
	for _, D := range append(slices.Clone(checkHeads), 256, 320, 512) {
		a := attentionCheck{queries: []int{1, 63, 65, 17}, keys: []int{1, 63, 65, 17}, heads: 4, kv: 2, D: D, cap: 1.5}
		windowed := attentionCheck{queries: []int{90, 129}, keys: []int{90, 129}, heads: 2, kv: 2, D: D, window: 50,
			cap: 50}
		cache := attentionCheck{queries: []int{37}, keys: []int{101}, after: 27, heads: 4, kv: 2, D: D, cap: 1.5}
		piece := attentionCheck{queries: []int{130}, keys: []int{517}, after: 70, heads: 4, kv: 2, D: D, cap: 1.5}
		divided := attentionCheck{queries: []int{1, 0, 1, 2}, keys: []int{700, 30, 5, 301}, after: 1, heads: 4, kv: 2,
			D: D, longest: 700}
		dividedWindow := attentionCheck{queries: []int{1, 1}, keys: []int{700, 301}, heads: 2, kv: 1, D: D, window: 200,
			cap: 1.5, longest: 700}
		all = append(all, a.check(n, true), windowed.check(n, true), cache.check(n, false), piece.check(n, false),
			divided.check(n, false), dividedWindow.check(n, false))
		for _, heads := range [][2]int{{24, 2}, {20, 1}} { // many heads of queries for a head of keys
			grouped := attentionCheck{queries: []int{1, 0, 1, 2}, keys: []int{700, 30, 5, 301}, after: 1,
				heads: heads[0], kv: heads[1], D: D, longest: 700}
			all = append(all, grouped.check(n, false))
		}
	}
	return all
}

// prefixedSequences are sequences, some of them continuing others: pairs, odd lengths, prefixes and sequences of
// several tiles, groups beside single sequences, and several groups within a tile.
var prefixedSequences = []struct{ lengths, prefix []int }{
	{[]int{5, 3, 4}, []int{-1, 0, 0}},
	{[]int{131, 70, 1, 33}, []int{-1, 0, 0, 0}},
	{[]int{17, 7, 9, 40, 129, 200}, []int{-1, 0, 0, -1, 3, 3}},
	{[]int{6, 300, 65, 63, 2, 1, 1, 11}, []int{-1, -1, 1, 1, -1, 4, 4, -1}},
	{[]int{1, 1, 1, 2, 3, 2, 5, 4, 9, 8}, []int{-1, 0, 0, -1, 3, 3, -1, 6, 6, 6}},
}

func bounds(lengths []int) []int {
	cu := []int{0}
	for i, n := range lengths {
		cu = append(cu, cu[i]+n)
	}
	return cu
}

func (a attentionCheck) check(n checkNumbers, backward bool) check {
	cuQ, cuK := bounds(a.queries), bounds(a.keys)
	M, N := cuQ[len(cuQ)-1]+a.after, cuK[len(cuK)-1]
	k := kernel.Attention{Heads: a.heads, KVHeads: a.kv, Scale: 1 / math.Sqrt(float64(a.D)), Window: a.window,
		Cap: a.cap, Longest: a.longest}
	c := check{kernel: "attention", name: fmt.Sprintf("%d heads over %d of %d, sequences of %v", a.heads, a.kv, a.D,
		a.queries), plain: a.plain,
		in: []checkInput{n.normal(1, M, a.heads*a.D), n.normal(1, N, a.kv*a.D), n.normal(1, N, a.kv*a.D),
			integers(cuQ...)}}
	if a.window > 0 {
		c.name += fmt.Sprintf(", window %d", a.window)
	}
	if a.prefix != nil {
		c.name += fmt.Sprintf(" that continue %v", a.prefix)
	}
	if a.cap > 0 {
		c.name += fmt.Sprintf(", soft cap %v", a.cap)
	}
	if !backward {
		c.name += fmt.Sprintf(" over %v keys", a.keys)
		if a.longest > 0 {
			c.name += " divided among blocks"
		}
		c.in = append(c.in, integers(cuK...))
		c.build, c.bounds = one(k), []bound{rounded, rounded}
		return c
	}
	c.in = append(c.in, n.normal(1, M, a.heads*a.D))
	c.bounds = []bound{rounded, rounded, rounded, rounded, rounded}
	if a.prefix != nil {
		k.Prefixes, c.in = true, append(c.in, integers(a.prefix...))
	}
	c.build = func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		q, key, v, do := in[0], in[1], in[2], in[4]
		bounds := append([]*graph.Value{in[3], in[3]}, in[5:]...)
		o := b.ApplyAll(k, append([]*graph.Value{q, key, v}, bounds...)...)
		grad := append([]*graph.Value{q, key, v, o[0], o[1], do}, bounds...)
		return append(slices.Clip(o), b.ApplyAll(kernel.AttentionGrad(k), grad...)...)
	}
	return c
}

// plain returns attention with matrices of scores and probabilities rounded: o, lse and, given the gradient of o,
// the gradients of q, k and v.
func (a attentionCheck) plain(f format, in [][]float64) [][]float64 {
	q, k, v := in[0], in[1], in[2]
	var do []float64
	if slices.Equal(a.queries, a.keys) && a.after == 0 {
		do = in[4]
	}
	cuQ, cuK, D, scale := bounds(a.queries), bounds(a.keys), a.D, 1/math.Sqrt(float64(a.D))
	M := len(q) / (a.heads * D)
	o, lse := make([]float64, len(q)), make([]float64, a.heads*M)
	dq, dk, dv := make([]float64, len(q)), make([]float64, len(k)), make([]float64, len(v))
	for s, nq := range a.queries {
		for i := range nq {
			end, begin := cuK[s]+a.keys[s]-(nq-1-i), cuK[s]
			if a.window > 0 {
				begin = max(begin, end-a.window)
			}
			seen := a.prefixOf(s)
			for j := begin; j < end; j++ {
				seen = append(seen, j)
			}
			for h := range a.heads {
				at := ((cuQ[s]+i)*a.heads + h) * D
				key := func(x []float64, j int) []float64 { return x[(seen[j]*a.kv+h/(a.heads/a.kv))*D:][:D] }
				if len(seen) == 0 {
					continue
				}
				p, through, top, sum := make([]float64, len(seen)), make([]float64, len(seen)), math.Inf(-1), 0.0
				for j := range p {
					p[j], through[j] = f.capped(f.round(f.round(dot(q[at:][:D], key(k, j)))*scale), a.cap)
					top = max(top, p[j])
				}
				if a.sinks {
					sink := in[len(in)-1][h]
					top = max(top, sink)
					sum = math.Exp(sink - top)
				}
				for _, x := range p {
					sum += math.Exp(x - top)
				}
				lse[h*M+cuQ[s]+i] = top + math.Log(sum)
				for j := range p {
					p[j] = f.round(math.Exp(p[j]-top) / sum)
					axpy(o[at:][:D], p[j], key(v, j))
				}
				f.all(o[at:][:D])
				if do == nil {
					continue
				}
				delta := dot(o[at:][:D], do[at:][:D])
				for j := range p {
					ds := f.round(p[j]*(f.round(dot(do[at:][:D], key(v, j)))-delta)*through[j]) * scale
					axpy(dq[at:][:D], ds, key(k, j))
					axpy(key(dk, j), ds, q[at:][:D])
					axpy(key(dv, j), p[j], do[at:][:D])
				}
			}
		}
	}
	if do == nil {
		return [][]float64{o, lse}
	}
	f.all(dq)
	f.all(dk)
	f.all(dv)
	return [][]float64{o, lse, dq, dk, dv}
}

// prefixOf returns the keys of the sequence that sequence s continues.
func (a attentionCheck) prefixOf(s int) (keys []int) {
	if a.prefix == nil || a.prefix[s] < 0 {
		return nil
	}
	cu := bounds(a.keys)
	for j := cu[a.prefix[s]]; j < cu[a.prefix[s]+1]; j++ {
		keys = append(keys, j)
	}
	return keys
}

// capped returns a soft-capped number and the derivative there, rounded; cap 0 is none.
func (f format) capped(x, cap float64) (y, slope float64) {
	if cap == 0 {
		return x, 1
	}
	t := f.round(math.Tanh(x / cap))
	return f.round(t * cap), 1 - t*t
}

func dot(a, b []float64) float64 {
	s := 0.0
	for i, x := range a {
		s += x * b[i]
	}
	return s
}

// axpy is y += a x.
func axpy(y []float64, a float64, x []float64) {
	for i := range y {
		y[i] += a * x[i]
	}
}
