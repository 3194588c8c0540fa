package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// branches are groups of sequences: a prefix of some tokens, then the lengths of the sequences that continue it. A
// group with a prefix of no token is sequences by themselves.
type branches []branch

type branch struct {
	prefix  int
	answers []int
}

// bounds returns where the sequences lie and which sequence each continues.
func (b branches) bounds() (cu, prefix []int32) {
	cu = []int32{0}
	add := func(n, of int) {
		cu, prefix = append(cu, cu[len(cu)-1]+int32(n)), append(prefix, int32(of))
	}
	for _, g := range b {
		of := -1
		if g.prefix > 0 {
			add(g.prefix, -1)
			of = len(prefix) - 1
		}
		for _, n := range g.answers {
			add(n, of)
		}
	}
	return cu, prefix
}

// whole returns the bounds of the sequences that repeat their prefixes, and for each of their rows the row of the
// sequences that share them; first says that it is the first to repeat that row.
func (b branches) whole() (cu []int32, rows []int, first []bool) {
	cu = []int32{0}
	at := 0
	for _, g := range b {
		start := at
		at += g.prefix
		for k, n := range g.answers {
			for i := range g.prefix {
				rows, first = append(rows, start+i), append(first, k == 0)
			}
			for range n {
				rows, first = append(rows, at), append(first, true)
				at++
			}
			cu = append(cu, int32(len(rows)))
		}
	}
	return cu, rows, first
}

var branchings = map[string]branches{
	"a pair":             {{5, []int{3, 4}}},
	"one answer":         {{7, []int{9}}},
	"odd":                {{1, []int{1, 1}}, {13, []int{5, 1, 7}}},
	"beside plain rows":  {{0, []int{6}}, {9, []int{4, 11}}, {0, []int{1, 3}}, {2, []int{2, 2, 2, 2}}},
	"tiles":              {{131, []int{70, 33}}, {40, []int{129, 1, 260}}},
	"an answer of tiles": {{17, []int{300, 5}}},
	"many":               {{33, []int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}}},
}

// prefixShapes are heads, key heads, head size, window and cap.
var prefixShapes = []layout{
	{heads: 4, kvs: 2, head: 6}, {heads: 3, kvs: 1, head: 8},
	{heads: 2, kvs: 2, head: 64}, {heads: 2, kvs: 1, head: 80},
	{heads: 4, kvs: 2, head: 8, window: 6}, {heads: 2, kvs: 1, head: 5, window: 20},
	{heads: 6, kvs: 2, head: 16, cap: 1.5}, {heads: 2, kvs: 2, head: 72, window: 3, cap: 1},
	{heads: 20, kvs: 1, head: 16, window: 150},
}

// prefixed returns the kernel of a shape for sequences that continue others.
func (l layout) prefixed() kernel.Attention {
	k := l.kernel()
	k.Prefixes = true
	return k
}

// TestPrefixesEqualRepeatedOnes compares attention over shared prefixes and its gradients with attention over sequences
// that repeat them.
func TestPrefixesEqualRepeatedOnes(t *testing.T) {
	for name, b := range branchings {
		for _, l := range prefixShapes {
			t.Run(fmt.Sprintf("%s, %d heads over %d of %d, window %d, cap %v", name, l.heads, l.kvs, l.head, l.window,
				l.cap), func(t *testing.T) {
				t.Run("f64", func(t *testing.T) { comparePrefixes(t, b, l, f64s, kernel.Tensor.F64, 1e-13) })
				t.Run("f32", func(t *testing.T) {
					make := func(x []float64, shape ...int) kernel.Tensor { return f32s(narrowed(x), shape...) }
					comparePrefixes(t, b, l, make, func(x kernel.Tensor) []float64 { return widen(x.F32()) }, 1e-6)
				})
			})
		}
	}
}

func narrowed(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}

func comparePrefixes(t *testing.T, b branches, l layout, tensor func([]float64, ...int) kernel.Tensor,
	numbers func(kernel.Tensor) []float64, bound float64) {
	cu, prefix := b.bounds()
	wholeCu, rows, first := b.whole()
	M, W := int(cu[len(cu)-1]), len(rows)
	width, keyWidth := l.heads*l.head, l.kvs*l.head
	repeat := func(x []float64, width int, once bool) []float64 {
		y := make([]float64, W*width)
		for i, r := range rows {
			if !once || first[i] {
				copy(y[i*width:][:width], x[r*width:][:width])
			}
		}
		return y
	}
	sum := func(y []float64, width int) []float64 {
		x := make([]float64, M*width)
		for i, r := range rows {
			for c := range width {
				x[r*width+c] += y[i*width+c]
			}
		}
		return x
	}
	q, k, v, do := normal64(1, M*width), normal64(2, M*keyWidth), normal64(3, M*keyWidth), normal64(4, M*width)
	own, bounds := []kernel.Tensor{tensor(q, M, width), tensor(k, M, keyWidth), tensor(v, M, keyWidth)},
		[]kernel.Tensor{i32s(cu), i32s(cu), i32s(prefix)}
	all := []kernel.Tensor{tensor(repeat(q, width, false), W, width), tensor(repeat(k, keyWidth, false), W, keyWidth),
		tensor(repeat(v, keyWidth, false), W, keyWidth)}
	wholeBounds := []kernel.Tensor{i32s(wholeCu), i32s(wholeCu)}
	got := evaluate(t, l.prefixed(), append(own[:3:3], bounds...)...)
	want := evaluate(t, l.kernel(), append(all[:3:3], wholeBounds...)...)
	same := func(what string, got, want []float64) {
		t.Helper()
		largest := 1.
		for _, x := range want {
			largest = max(largest, math.Abs(x))
		}
		near(t, what, got, want, bound*largest)
	}
	same("o", repeat(numbers(got[0]), width, false), numbers(want[0]))
	grads := evaluate(t, kernel.AttentionGrad(l.prefixed()),
		append(append(own[:3:3], got[0], got[1], tensor(do, M, width)), bounds...)...)
	wants := evaluate(t, kernel.AttentionGrad(l.kernel()),
		append(append(all[:3:3], want[0], want[1], tensor(repeat(do, width, true), W, width)), wholeBounds...)...)
	for i, what := range []string{"dq", "dk", "dv"} {
		of := width
		if i > 0 {
			of = keyWidth
		}
		same(what, numbers(grads[i]), sum(numbers(wants[i]), of))
	}
}

// TestAttentionPrefixes checks what every kernel has to do: gradients by differences, the same bits whatever the number
// of threads, and no access outside of the tensors.
func TestAttentionPrefixes(t *testing.T) {
	for _, name := range []string{"a pair", "odd", "beside plain rows", "tiles"} {
		cu, prefix := branchings[name].bounds()
		M := int(cu[len(cu)-1])
		for _, l := range []layout{prefixShapes[0], prefixShapes[1], prefixShapes[4], prefixShapes[6]} {
			l.name = fmt.Sprintf("%s, heads of %d", name, l.head)
			q, k := kerneltest.Normal(M, l.heads*l.head), kerneltest.Normal(M, l.kvs*l.head)
			qkv, stat := kerneltest.Normal(M, l.width()), kerneltest.Uniform(2, 3, l.heads, M)
			c := kerneltest.Ints(cu, len(cu))
			p := kerneltest.Ints(prefix, len(prefix))
			kerneltest.Run(t,
				kerneltest.Case{Name: l.name, Kernel: l.prefixed(), In: []kerneltest.Input{q, k, k, c, c, p},
					Bound: 5e-7},
				kerneltest.Case{Name: l.name + " backward", Kernel: kernel.AttentionGrad(l.prefixed()),
					In: []kerneltest.Input{q, k, k, q, stat, q, c, c, p}, Bound: 1.3e-6},
				kerneltest.Case{Name: l.name + " fused", Kernel: kernel.AttentionQKV(l.prefixed()),
					In: []kerneltest.Input{qkv, c, p}, Bound: 5e-7},
				kerneltest.Case{Name: l.name + " fused backward", Kernel: kernel.AttentionQKVGrad(l.prefixed()),
					In: []kerneltest.Input{qkv, q, stat, q, c, p}, Bound: 1.3e-6},
			)
		}
	}
}

// TestAttentionHostilePrefixes checks that numbers which are no prefix reach nothing outside of the tensors.
func TestAttentionHostilePrefixes(t *testing.T) {
	x := f32s(normal32(1, 40), 10, 4)
	for _, cu := range [][]int32{{0, 4, 7, 10}, {-5, 3, 1 << 30, 2}, {9, 9, 0, 10}} {
		for _, prefix := range [][]int32{{0, 0, 1}, {-1, 5, math.MaxInt32}, {math.MinInt32, 1, 0}} {
			for _, window := range []int{0, 2} {
				k := kernel.Attention{Heads: 1, KVHeads: 1, Scale: 1, Window: window, Prefixes: true}
				out := evaluate(t, k, x, x, x, i32s(cu), i32s(cu), i32s(prefix))
				evaluate(t, kernel.AttentionGrad(k), x, x, x, out[0], out[1], x, i32s(cu), i32s(cu), i32s(prefix))
			}
		}
	}
	k := kernel.Attention{Heads: 1, KVHeads: 1, Scale: 1, Prefixes: true}
	rows, bounds := kernel.T(kernel.F32, 3, 4), kernel.T(kernel.I32, 3)
	if _, err := k.Shape([]kernel.Type{rows, rows, rows, bounds, bounds, bounds}); err == nil {
		t.Error("as many prefixes as bounds: accepted")
	}
}
