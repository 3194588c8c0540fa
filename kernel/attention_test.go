package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// layout is a set of packed sequences with queries and keys beyond them.
type layout struct {
	name       string
	cuQ, cuK   []int32
	m, n       int // rows of q, and of k and v
	heads, kvs int
	head       int
	window     int
	cap        float64
}

var layouts = []layout{
	{"one row", []int32{0, 1}, []int32{0, 1}, 1, 1, 1, 1, 2, 0, 0},
	{"odd", []int32{0, 13}, []int32{0, 13}, 13, 13, 3, 3, 5, 0, 0},
	{"grouped", []int32{0, 9}, []int32{0, 9}, 9, 9, 6, 2, 8, 0, 0},
	{"packed", []int32{0, 5, 5, 17, 20}, []int32{0, 5, 5, 17, 20}, 23, 23, 4, 2, 6, 0, 0},
	{"after a prefix", []int32{0, 3, 5}, []int32{0, 11, 14}, 5, 14, 2, 1, 4, 0, 0},
	{"one query", []int32{0, 1, 2}, []int32{0, 7, 100}, 2, 110, 4, 2, 8, 0, 0},
	{"more queries than keys", []int32{0, 9}, []int32{0, 4}, 9, 4, 2, 2, 4, 0, 0},
	{"no keys", []int32{0, 4, 8}, []int32{0, 0, 4}, 8, 4, 2, 2, 4, 0, 0},
	{"window", []int32{0, 12, 30}, []int32{0, 12, 30}, 30, 30, 2, 2, 4, 5, 0},
	{"window of one", []int32{0, 6}, []int32{0, 6}, 6, 6, 1, 1, 4, 1, 0},
	{"tiles", []int32{3, 140, 206}, []int32{1, 138, 204}, 210, 205, 3, 1, 4, 0, 0},
	{"tiles with a window", []int32{0, 200}, []int32{0, 200}, 200, 200, 2, 1, 2, 70, 0},
	{"wide heads", []int32{0, 20}, []int32{0, 20}, 20, 20, 2, 1, 80, 0, 0},
	{"several tiles a strand", []int32{0, 20, 150}, []int32{0, 20, 150}, 150, 150, 8, 8, 2, 0, 0},
	{"one key head of many", []int32{0, 4, 30}, []int32{0, 4, 30}, 30, 30, 20, 1, 2, 0, 0},
	{"avx512Queries", []int32{0, 13, 13, 45, 200}, []int32{0, 13, 13, 45, 200}, 203, 201, 4, 2, 8, 0, 0},
	{"avx512Queries with a window", []int32{2, 161, 180}, []int32{1, 160, 180}, 181, 182, 2, 2, 16, 37, 0},
	{"avx512Queries after a prefix", []int32{0, 30, 31}, []int32{0, 171, 190}, 33, 195, 6, 2, 24, 0, 0},
	{"avx512Queries, more queries than keys", []int32{0, 40, 60}, []int32{0, 9, 9}, 60, 9, 2, 1, 8, 4, 0},
	{"avx512Queries, even sequences", []int32{1, 20, 40, 57, 75}, []int32{2, 21, 41, 58, 76}, 79, 78, 4, 4, 8, 0, 0},
	{"even sequences", []int32{1, 20, 40, 57, 75}, []int32{2, 21, 41, 58, 76}, 79, 78, 4, 4, 6, 0, 0},
	{"nothing", []int32{2}, []int32{3}, 3, 3, 1, 1, 4, 0, 0},
	{"cap", []int32{0, 5, 5, 17, 20}, []int32{0, 5, 5, 17, 20}, 23, 23, 4, 2, 6, 0, 1.5},
	{"cap with a window", []int32{0, 200}, []int32{0, 200}, 200, 200, 2, 1, 2, 70, 0.7},
	{"cap, wide heads", []int32{0, 20}, []int32{0, 20}, 20, 20, 2, 1, 80, 0, 2},
	{"cap after a prefix", []int32{0, 3, 5}, []int32{0, 11, 14}, 5, 14, 2, 1, 4, 0, 2},
	{"cap, avx512Queries", []int32{2, 161, 180}, []int32{1, 160, 180}, 181, 182, 2, 2, 16, 37, 1.5},
	{"cap, avx512Queries, more queries than keys", []int32{0, 40, 60}, []int32{0, 9, 9}, 60, 9, 2, 1, 8, 4, 1},
}

func (l layout) kernel() kernel.Attention {
	return kernel.Attention{Heads: l.heads, KVHeads: l.kvs, Scale: 1 / math.Sqrt(float64(l.head)), Window: l.window,
		Cap: l.cap}
}

func (l layout) bounds() []kerneltest.Input {
	return []kerneltest.Input{kerneltest.Ints(l.cuQ, len(l.cuQ)), kerneltest.Ints(l.cuK, len(l.cuK))}
}

func TestAttention(t *testing.T) {
	for _, l := range layouts {
		q, k := kerneltest.Normal(l.m, l.heads*l.head), kerneltest.Normal(l.n, l.kvs*l.head)
		stat := kerneltest.Uniform(2, 3, l.heads, l.m)
		kerneltest.Run(t,
			kerneltest.Case{Name: l.name, Kernel: l.kernel(), In: append([]kerneltest.Input{q, k, k}, l.bounds()...),
				Bound: 5e-7},
			kerneltest.Case{Name: l.name + " backward", Kernel: kernel.AttentionGrad(l.kernel()),
				In: append([]kerneltest.Input{q, k, k, q, stat, q}, l.bounds()...), Bound: 1.3e-6},
		)
	}
}

// The definition with every score held, in float64.
func TestAttentionMeaning(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			q, k, v := normal64(1, l.m*l.heads*l.head), normal64(2, l.n*l.kvs*l.head), normal64(3, l.n*l.kvs*l.head)
			out := evaluate(t, l.kernel(), f64s(q, l.m, l.heads*l.head), f64s(k, l.n, l.kvs*l.head),
				f64s(v, l.n, l.kvs*l.head), i32s(l.cuQ), i32s(l.cuK))
			o, lse := l.definition(q, k, v)
			near(t, "o", out[0].F64(), o, 1e-13)
			near(t, "lse", out[1].F64(), lse, 1e-13)
		})
	}
}

func (l layout) definition(q, k, v []float64) (o, lse []float64) {
	o, lse = make([]float64, len(q)), make([]float64, l.heads*l.m)
	scale := 1 / math.Sqrt(float64(l.head))
	for s := range len(l.cuQ) - 1 {
		q0, q1, k0, k1 := int(l.cuQ[s]), int(l.cuQ[s+1]), int(l.cuK[s]), int(l.cuK[s+1])
		for i := range q1 - q0 {
			for h := range l.heads {
				kv := h * l.kvs / l.heads
				query := q[(q0+i)*l.heads*l.head+h*l.head:][:l.head]
				at := i + (k1 - k0) - (q1 - q0) // the key at the query's own position
				weights, sum := map[int]float64{}, 0.0
				for j := range k1 - k0 {
					if j > at || l.window > 0 && j <= at-l.window {
						continue
					}
					score := 0.0
					for d, x := range query {
						score += x * k[(k0+j)*l.kvs*l.head+kv*l.head+d]
					}
					score *= scale
					if l.cap > 0 {
						score = l.cap * math.Tanh(score/l.cap)
					}
					weights[j] = math.Exp(score)
					sum += weights[j]
				}
				if sum == 0 {
					continue
				}
				lse[h*l.m+q0+i] = math.Log(sum)
				for j, w := range weights {
					for d := range l.head {
						o[(q0+i)*l.heads*l.head+h*l.head+d] += w / sum * v[(k0+j)*l.kvs*l.head+kv*l.head+d]
					}
				}
			}
		}
	}
	return o, lse
}

// Scores far apart: one key takes all of the weight, the others vanish without overflow.
func TestAttentionLargeScores(t *testing.T) {
	const m, head = 100, 8
	q, k := make([]float32, m*head), make([]float32, m*head)
	v := normal32(3, m*head)
	for i := range m {
		q[i*head], k[i*head] = 100, float32(i%10)*10
	}
	out := evaluate(t, kernel.Attention{Heads: 1, KVHeads: 1, Scale: 1}, f32s(q, m, head), f32s(k, m, head),
		f32s(v, m, head), i32s([]int32{0, m}), i32s([]int32{0, m}))
	for i := range m {
		best, n := 0, 0.0
		for j := range i + 1 {
			best = max(best, j%10)
		}
		var want [head]float64
		for j := range i + 1 {
			if j%10 == best {
				n++
				for d := range head {
					want[d] += float64(v[j*head+d])
				}
			}
		}
		for d := range want {
			want[d] /= n
		}
		near(t, fmt.Sprintf("row %d", i), widen(out[0].F32()[i*head:][:head]), want[:], 1e-6)
	}
}

// Bounds that are no bounds must not reach outside the tensors.
func TestAttentionHostileBounds(t *testing.T) {
	none := f32s(nil, 0, 4)
	single := kernel.Attention{Heads: 1, KVHeads: 1, Scale: 1}
	out := evaluate(t, single, f32s(normal32(1, 8), 2, 4), none, none, i32s([]int32{0, 2}), i32s([]int32{0, 0}))
	near(t, "o without keys", widen(out[0].F32()), make([]float64, 8), 0)
	x := f32s(normal32(1, 8), 2, 4)
	evaluate(t, kernel.AttentionGrad(single), x, none, none, out[0], out[1], x, i32s([]int32{0, 2}),
		i32s([]int32{0, 0}))
	nothing := i32s([]int32{0, 0})
	out = evaluate(t, single, none, none, none, nothing, nothing)
	evaluate(t, kernel.AttentionGrad(single), none, none, none, out[0], out[1], none, nothing, nothing)
	for _, cu := range [][]int32{{0, 1 << 30}, {-5, 3}, {4, 2}, {math.MinInt32, math.MaxInt32}, {3, 0, 9, 1}} {
		x := f32s(normal32(1, 40), 10, 4)
		k := kernel.Attention{Heads: 1, KVHeads: 1, Scale: 1, Window: 2}
		out := evaluate(t, k, x, x, x, i32s(cu), i32s(cu))
		evaluate(t, kernel.AttentionGrad(k), x, x, x, out[0], out[1], x, i32s(cu), i32s(cu))
	}
}

func TestAttentionRefuses(t *testing.T) {
	good := kernel.Attention{Heads: 4, KVHeads: 2, Scale: 1}
	types := func(d kernel.DType, q, k int) []kernel.Type {
		cu := kernel.T(kernel.I32, 2)
		return []kernel.Type{kernel.T(kernel.F32, 3, q), kernel.T(kernel.F32, 5, k), kernel.T(d, 5, k), cu, cu}
	}
	if _, err := good.Shape(types(kernel.F32, 16, 8)); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		k  kernel.Attention
		in []kernel.Type
	}{
		"mixed floats":      {good, types(kernel.F64, 16, 8)},
		"other head sizes":  {good, types(kernel.F32, 16, 16)},
		"broken heads":      {good, types(kernel.F32, 18, 9)},
		"uneven groups":     {kernel.Attention{Heads: 4, KVHeads: 3, Scale: 1}, types(kernel.F32, 16, 12)},
		"no heads":          {kernel.Attention{Scale: 1}, types(kernel.F32, 16, 8)},
		"empty heads":       {good, types(kernel.F32, 0, 0)},
		"no scale":          {kernel.Attention{Heads: 4, KVHeads: 2}, types(kernel.F32, 16, 8)},
		"a negative window": {kernel.Attention{Heads: 4, KVHeads: 2, Scale: 1, Window: -1}, types(kernel.F32, 16, 8)},
		"a negative cap":    {kernel.Attention{Heads: 4, KVHeads: 2, Scale: 1, Cap: -1}, types(kernel.F32, 16, 8)},
		"no cap": {kernel.Attention{Heads: 4, KVHeads: 2, Scale: 1, Cap: math.NaN()},
			types(kernel.F32, 16, 8)},
		"an infinite cap": {kernel.Attention{Heads: 4, KVHeads: 2, Scale: 1, Cap: math.Inf(1)},
			types(kernel.F32, 16, 8)},
	} {
		if _, err := c.k.Shape(c.in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// A text's next token attends as the last row of a longer piece does, to the bit where queries or heads stand side by
// side in a vector, and to rounding where a GEMM of other sizes sums in another order.
func TestSingleQueryIsTheLastOfSeveral(t *testing.T) {
	const several, keys = 5, 301
	for _, heads := range [][2]int{{1, 1}, {3, 1}, {9, 3}, {20, 1}, {34, 2}} {
		for _, head := range []int{8, 64, 80} {
			for _, cap := range []float64{0, 1.5} {
				name := fmt.Sprintf("%d heads of %d over %d, cap %v", heads[0], head, heads[1], cap)
				o := kernel.Attention{Heads: heads[0], KVHeads: heads[1], Scale: 1 / math.Sqrt(float64(head)), Cap: cap}
				width, keyWidth := heads[0]*head, heads[1]*head
				q, k, v := normal32(1, several*width), normal32(2, keys*keyWidth), normal32(3, keys*keyWidth)
				run := func(rows int) (out, lse []float32) {
					bounds := []int32{int32(several - rows), several}
					all := evaluate(t, o, f32s(q, several, width), f32s(k, keys, keyWidth), f32s(v, keys, keyWidth),
						i32s(bounds), i32s([]int32{0, keys}))
					last := make([]float32, heads[0])
					for h := range last {
						last[h] = all[1].F32()[(h+1)*several-1]
					}
					return all[0].F32()[(several-1)*width:], last
				}
				out, lse := run(1)
				wantOut, wantLSE := run(several)
				bound := 1e-6
				if head <= 64 && gemm.Path() == "avx512" {
					bound = 0
				}
				near(t, name+": o", widen(out), widen(wantOut), bound)
				near(t, name+": lse", widen(lse), widen(wantLSE), bound)
			}
		}
	}
}

// TestSequenceHasTheSameBitsWhereverItLies moves a sequence through a batch, so that tiles of queries cut it at other
// places, down to a single query of its own.
func TestSequenceHasTheSameBitsWhereverItLies(t *testing.T) {
	const rows, length = 100, 27
	for _, head := range []int{8, 20, 80} {
		for _, group := range []int{1, 3} {
			o := kernel.Attention{Heads: 2 * group, KVHeads: 2, Scale: 1 / math.Sqrt(float64(head))}
			width, keyWidth := o.Heads*head, o.KVHeads*head
			q, k := normal32(1, length*width), normal32(2, length*keyWidth)
			at := func(first int) (out, dq []float32) {
				place := func(x []float32, width int) []float32 {
					all := normal32(9, rows*width)
					copy(all[first*width:], x)
					return all
				}
				bounds := i32s([]int32{0, int32(first), int32(first + length), rows})
				tq, tk := f32s(place(q, width), rows, width), f32s(place(k, keyWidth), rows, keyWidth)
				all := evaluate(t, o, tq, tk, tk, bounds, bounds)
				grads := evaluate(t, kernel.AttentionGrad(o), tq, tk, tk, all[0], all[1], tq, bounds, bounds)
				return all[0].F32()[first*width:][:length*width], grads[0].F32()[first*width:][:length*width]
			}
			wantOut, wantDQ := at(0)
			for first := 1; first <= rows-length; first++ {
				out, dq := at(first)
				if !slices.Equal(out, wantOut) || !slices.Equal(dq, wantDQ) {
					t.Fatalf("head %d, group %d: from row %d on a sequence has other values than from row 0 on",
						head, group, first)
				}
			}
		}
	}
}

// fused returns the layouts whose queries and keys have the same bounds, with as many rows of either.
func fused(t *testing.T) (all []layout) {
	for _, l := range layouts {
		if slices.Equal(l.cuQ, l.cuK) {
			l.m = max(l.m, l.n)
			all = append(all, l)
		}
	}
	if len(all) < 10 {
		t.Fatalf("%d layouts", len(all))
	}
	return all
}

func (l layout) width() int { return (l.heads + 2*l.kvs) * l.head }

func TestAttentionQKV(t *testing.T) {
	for _, l := range fused(t) {
		qkv, o := kerneltest.Normal(l.m, l.width()), kerneltest.Normal(l.m, l.heads*l.head)
		stat, cu := kerneltest.Uniform(2, 3, l.heads, l.m), l.bounds()[0]
		kerneltest.Run(t,
			kerneltest.Case{Name: l.name, Kernel: kernel.AttentionQKV(l.kernel()), In: []kerneltest.Input{qkv, cu},
				Bound: 5e-7},
			kerneltest.Case{Name: l.name + " backward", Kernel: kernel.AttentionQKVGrad(l.kernel()),
				In: []kerneltest.Input{qkv, o, stat, o, cu}, Bound: 1.3e-6},
		)
	}
}

// TestAttentionQKVIsAttention: the bits are those of three projections.
func TestAttentionQKVIsAttention(t *testing.T) {
	for _, l := range fused(t) {
		t.Run(l.name, func(t *testing.T) {
			widths := []int{l.heads * l.head, l.kvs * l.head, l.kvs * l.head}
			qkv, do, cu := f32s(normal32(1, l.m*l.width()), l.m, l.width()),
				f32s(normal32(2, l.m*widths[0]), l.m, widths[0]), i32s(l.cuQ)
			split := func(x kernel.Tensor) (parts []kernel.Tensor) {
				from := 0
				for _, w := range widths {
					var part []float32
					for r := range l.m {
						part = append(part, x.F32()[r*l.width()+from:][:w]...)
					}
					parts, from = append(parts, f32s(part, l.m, w)), from+w
				}
				return parts
			}
			p := split(qkv)
			want := evaluate(t, l.kernel(), p[0], p[1], p[2], cu, cu)
			got := evaluate(t, kernel.AttentionQKV(l.kernel()), qkv, cu)
			for i, what := range []string{"o", "lse"} {
				if !slices.Equal(got[i].F32(), want[i].F32()) {
					t.Errorf("%s differs from Attention's", what)
				}
			}
			grads := evaluate(t, kernel.AttentionGrad(l.kernel()), p[0], p[1], p[2], want[0], want[1], do, cu, cu)
			all := split(evaluate(t, kernel.AttentionQKVGrad(l.kernel()), qkv, want[0], want[1], do, cu)[0])
			for i, what := range []string{"dq", "dk", "dv"} {
				if !slices.Equal(all[i].F32(), grads[i].F32()) {
					t.Errorf("%s differs from AttentionGrad's", what)
				}
			}
		})
	}
}

func TestAttentionQKVRefuses(t *testing.T) {
	good := kernel.AttentionQKV{Heads: 4, KVHeads: 2, Scale: 1}
	types := func(width int) []kernel.Type {
		return []kernel.Type{kernel.T(kernel.F32, 3, width), kernel.T(kernel.I32, 2)}
	}
	if _, err := good.Shape(types(32)); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		k  kernel.AttentionQKV
		in []kernel.Type
	}{
		"broken heads":  {good, types(33)},
		"empty heads":   {good, types(0)},
		"uneven groups": {kernel.AttentionQKV{Heads: 4, KVHeads: 3, Scale: 1}, types(40)},
		"no heads":      {kernel.AttentionQKV{Scale: 1}, types(32)},
		"no scale":      {kernel.AttentionQKV{Heads: 4, KVHeads: 2}, types(32)},
	} {
		if _, err := c.k.Shape(c.in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
