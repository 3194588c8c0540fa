package selfcheck

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// fusedChecks returns the kernels that read parts of a fused projection's rows where they lie, or of a head.
func fusedChecks() []check {
	n := newNumbers()
	var all []check
	for _, M := range checkRows {
		for _, C := range checkWidths {
			size := fmt.Sprintf("[%d,%d]", M, 2*C)
			all = append(all,
				check{kernel: "swiglu_gate_up", name: size, build: one(kernel.SwiGLUGateUp{}), bounds: []bound{rounded},
					in: []checkInput{n.normal(2, M, 2*C)}},
				check{kernel: "swiglu_gate_up_grad", name: size, build: one(kernel.SwiGLUGateUpGrad{}),
					bounds: []bound{rounded}, inPlace: []int{0},
					in: []checkInput{n.normal(2, M, 2*C), n.normal(1, M, C)}})
		}
		for _, D := range checkHeads {
			all = append(all, ropeCheck(n, M, kernel.RoPE{Heads: 3, Rest: 2, HeadDim: D}, D),
				ropeCheck(n, M, kernel.RoPE{Heads: 2, Rest: 1, HeadDim: D, Inverse: true}, D/4*3/2*2),
				check{kernel: "columns", name: fmt.Sprintf("the second of 3 heads of %d, %d rows", D, M),
					build: one(kernel.Columns{From: D, Width: D}), bounds: []bound{exact},
					in: []checkInput{n.normal(1, M, 3*D)}})
		}
	}
	for _, D := range checkHeads {
		for _, h := range [][3]int{{1, 3, 1}, {2, 4, 2}, {4, 8, 2}, {8, 8, 8}} { // ranks, heads, key heads
			all = append(all, headsChecks(n, kernel.HeadShares{Ranks: h[0], Heads: h[1], KVHeads: h[2]}, 33, D)...)
		}
	}
	all = append(all, blockChecks(n)...)
	for _, z := range [][3]int{{6, 40, 5}, {64, 7, 14}, {300, 33, 9900}} { // rows, columns, rows afterwards
		all = append(all, check{kernel: "reshape", name: fmt.Sprintf("[%d,%d] in %d rows", z[0], z[1], z[2]),
			build: one(kernel.Reshape{From: z[0], To: z[2]}), bounds: []bound{exact},
			in: []checkInput{n.normal(1, z[0], z[1])}},
			check{kernel: "reshape", name: fmt.Sprintf("fp32 [%d,%d] in %d rows", z[0], z[1], z[2]),
				build: one(kernel.Reshape{From: z[0], To: z[2]}), bounds: []bound{rounded},
				in: []checkInput{n.normal32(1, z[0], z[1])}})
	}
	for _, at := range [][]int{{0, 2, -1, 1, 7}, {1}} {
		all = append(all, check{kernel: "row_factors", name: fmt.Sprintf("rows %v of 3", at),
			build: one(kernel.RowFactors{}), bounds: []bound{rounded}, inPlace: []int{0},
			in: []checkInput{n.normal(1, len(at), 40), integers(at...), n.normal32(1, 3, 40)}})
	}
	for _, limit := range []int{0, 40, 1000} {
		all = append(all, positionsCheck(n, limit))
	}
	for _, D := range checkHeads {
		for _, h := range [][2]int{{4, 2}, {3, 1}, {2, 2}} {
			for _, lengths := range [][]int{{1}, {65}, {129}, {1, 63, 64, 65, 17}} {
				all = append(all, attentionCheck{queries: lengths, keys: lengths, heads: h[0], kv: h[1], D: D}.fused(n))
			}
			all = append(all, attentionCheck{queries: []int{90, 129}, keys: []int{90, 129}, heads: h[0], kv: h[1], D: D,
				window: 50}.fused(n))
		}
	}
	return all
}

// blockChecks rotate blocks of columns, and return the gradients of their matrices.
func blockChecks(n checkNumbers) (all []check) {
	for _, z := range [][3]int{{5, 12, 3}, {33, 64, 32}, {200, 96, 48}, {1030, 64, 8}} { // rows, columns, block
		M, C, B := z[0], z[1], z[2]
		name := fmt.Sprintf("[%d,%d] in blocks of %d", M, C, B)
		all = append(all,
			check{kernel: "block_rotate", name: name, build: one(kernel.BlockRotate{Block: B}),
				bounds: []bound{rounded}, in: []checkInput{n.normal(1, M, C), n.normal(1, C, B)}},
			check{kernel: "block_rotate", name: name + ", transposed", bounds: []bound{rounded},
				build: one(kernel.BlockRotate{Block: B, TransB: true}),
				in:    []checkInput{n.normal(1, M, C), n.normal(1, C, B)}},
			check{kernel: "block_outer", name: name, build: one(kernel.BlockOuter{Block: B}), bounds: []bound{rounded},
				in: []checkInput{n.normal(1, M, C), n.normal(1, M, C)}})
	}
	return all
}

// headsChecks lay out heads of D in the blocks of ranks, and bring them together.
func headsChecks(n checkNumbers, s kernel.HeadShares, M, D int) []check {
	own, kv := s.Own()
	name := fmt.Sprintf("%d heads of %d over %d, %d ranks", s.Heads, D, s.KVHeads, s.Ranks)
	fused, queries := s, s
	fused.Fused, queries.KVHeads = true, 0
	x := func(heads int) checkInput { return n.normal(1, M, heads*D) }
	blocks := func(heads int) checkInput { return n.normal(1, s.Ranks*M, heads*D) }
	return []check{
		{kernel: "heads_split", name: name, build: one(kernel.SplitHeads(s)), bounds: []bound{exact},
			in: []checkInput{x(s.Heads), x(s.KVHeads), x(s.KVHeads)}},
		{kernel: "heads_split", name: name + ", fused", build: one(kernel.SplitHeads(fused)), bounds: []bound{exact},
			in: []checkInput{x(s.Heads + 2*s.KVHeads)}},
		{kernel: "heads_join", name: name, build: one(kernel.JoinHeads(s)), bounds: []bound{exact, rounded, rounded},
			in: []checkInput{blocks(own + 2*kv)}},
		{kernel: "heads_join", name: name + ", fused", build: one(kernel.JoinHeads(fused)), bounds: []bound{rounded},
			in: []checkInput{blocks(own + 2*kv)}},
		{kernel: "heads_join", name: name + ", queries", build: one(kernel.JoinHeads(queries)), bounds: []bound{exact},
			in: []checkInput{blocks(own)}},
		{kernel: "alltoall", name: name + ", alone", build: one(kernel.AllToAll{Ranks: 1}), bounds: []bound{exact},
			in: []checkInput{blocks(own)}},
	}
}

// positionsCheck rotates tokens by places in a table for short and long sequences.
func positionsCheck(n checkNumbers, limit int) check {
	const D, P = 32, 200
	c := ropeCheck(n, 129, kernel.RoPE{Heads: 2, HeadDim: D}, D)
	k, move := kernel.RoPE{Heads: 2, HeadDim: D}, kernel.PositionsByLength{Limit: limit, Offset: P / 2}
	for i := range c.in[2].values {
		c.in[2].values[i] = float64(i * 37 % (P / 2))
	}
	c.kernel, c.name, c.inPlace = "positions", fmt.Sprintf("sequences of 63, 1 and 64 tokens, limit %d", limit), nil
	c.in = append(c.in, integers(0, 63, 63, 64, 128))
	c.build = func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		return b.ApplyAll(k, in[0], in[1], b.Apply(move, in[2], in[3]))
	}
	return c
}

// fused returns the check of queries, keys and values that lie side by side.
func (a attentionCheck) fused(n checkNumbers) check {
	cu := bounds(a.queries)
	M, k := cu[len(cu)-1], kernel.AttentionQKV{Heads: a.heads, KVHeads: a.kv, Scale: 1 / math.Sqrt(float64(a.D)),
		Window: a.window}
	c := check{kernel: "attention_qkv", name: fmt.Sprintf("%d heads over %d of %d, sequences of %v", a.heads, a.kv, a.D,
		a.queries), bounds: []bound{rounded, rounded, rounded},
		in: []checkInput{n.normal(1, M, (a.heads+2*a.kv)*a.D), integers(cu...), n.normal(1, M, a.heads*a.D)}}
	if a.window > 0 {
		c.name += fmt.Sprintf(", window %d", a.window)
	}
	c.build = func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		o := b.ApplyAll(k, in[0], in[1])
		return append(slices.Clip(o), b.ApplyAll(kernel.AttentionQKVGrad(k), in[0], o[0], o[1], in[2], in[1])...)
	}
	widths := []int{a.heads * a.D, a.kv * a.D, a.kv * a.D}
	c.plain = func(f format, in [][]float64) [][]float64 {
		parts := make([][]float64, 3)
		for at, x := range in[0] {
			i := 0
			for column := at % (len(in[0]) / M); column >= widths[i]; i++ {
				column -= widths[i]
			}
			parts[i] = append(parts[i], x)
		}
		out := a.plain(f, [][]float64{parts[0], parts[1], parts[2], in[1], in[2]})
		var d []float64
		for m := range M {
			for i, w := range widths {
				d = append(d, out[2+i][m*w:][:w]...)
			}
		}
		return [][]float64{out[0], out[1], d}
	}
	return c
}
