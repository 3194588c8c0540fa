package graph

import (
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// decodeStep returns two layers of a step over a cache, with rows apart.
func decodeStep(t *testing.T, on Rehearsal, without ...string) (calls int, out []float32) {
	t.Helper()
	return decodeStepOf(t, on, "table", without...)
}

// decodeStepOf has queries rotated by the table of a name.
func decodeStepOf(t *testing.T, on Rehearsal, queries string, without ...string) (calls int, out []float32) {
	t.Helper()
	const M, C, F, H, K, D, P = 3, 64, 40, 4, 2, 16, 12
	b := NewBuilder(kernel.F32)
	x, table, positions, at := b.Batch("x", kernel.T(kernel.F32, M, C)), b.Frozen("table", kernel.T(kernel.F32, 20, D)),
		b.Batch("positions", kernel.T(kernel.I32, M)), b.Batch("at", kernel.T(kernel.I32, M))
	ofQueries := b.Frozen(queries, kernel.T(kernel.F32, 20, D))
	cuQ, cuK := b.Batch("cu_seqlens", kernel.T(kernel.I32, 4)), b.Batch("cu_keys", kernel.T(kernel.I32, 4))
	names, add := []string{"x", "table", queries, "positions", "at", "cu_seqlens", "cu_keys", "norm"}, b.Apply
	linear := func(name string, x *Value, n int) *Value {
		names = append(names, name)
		return add(kernel.MatMul{TransB: true}, x, b.Frozen(name, kernel.T(kernel.F32, n, x.Type.Shape[1])))
	}
	norm := func(x *Value) *Value {
		return add(kernel.RMSNorm{Eps: 1e-5}, x, b.Frozen("norm", kernel.T(kernel.F32, C)))
	}
	y := x
	for _, layer := range []string{"0 ", "1 "} {
		cached := func(name string, rows *Value) *Value {
			return add(kernel.KVAppend{}, b.State("cache", layer+name, kernel.T(kernel.F32, P, K*D)), rows, at)
		}
		n := norm(y)
		q, k, v := linear(layer+"q", n, H*D), linear(layer+"k", n, K*D), linear(layer+"v", n, K*D)
		q, k = add(kernel.RoPE{Heads: H, HeadDim: D}, q, ofQueries, positions),
			add(kernel.RoPE{Heads: K, HeadDim: D}, k, table, positions)
		heads := add(kernel.Attention{Heads: H, KVHeads: K, Scale: 0.25, Longest: 4}, q, cached("keys", k),
			cached("values", v), cuQ, cuK)
		y = add(kernel.Add{}, y, linear(layer+"o", heads, C))
		n = norm(y)
		h := add(kernel.SwiGLU{}, linear(layer+"gate", n, F), linear(layer+"up", n, F))
		y = add(kernel.Add{}, y, linear(layer+"down", h, C))
	}
	b.RowsApart()
	b.Without(without...)
	p, err := on.Compile(b, y)
	if err != nil {
		t.Fatal(err)
	}
	store, err := on.NewStore(p)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	run, err := on.Bind(p, store)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		v, err := store.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "positions":
			copy(v.I32(), []int32{3, 0, 9})
		case "at":
			copy(v.I32(), []int32{2, -1, 8})
		case "cu_seqlens":
			copy(v.I32(), []int32{0, 1, 2, 3})
		case "cu_keys":
			copy(v.I32(), []int32{0, 3, 5, 9})
		default:
			for j := range v.F32() {
				v.F32()[j] = float32((i*31+j*17)%23-11) / 40
			}
		}
		if name == queries && name != "table" {
			for j := range v.F32() {
				v.F32()[j] *= 3
			}
		}
	}
	if err := run.Run("main"); err != nil {
		t.Fatal(err)
	}
	r, err := run.Read(y)
	if err != nil {
		t.Fatal(err)
	}
	return len(p.calls), slices.Clone(r.F32())
}

// TestFewerCallsSameBits: each pass makes fewer calls of a decode step, and all give the same bits.
func TestFewerCallsSameBits(t *testing.T) {
	on := NewRehearsal(2)
	defer on.Close()
	const caches, rows = "fuse rotations and caches", "share rows"
	all, want := decodeStep(t, on, caches, rows)
	for _, c := range []struct {
		without []string
		fewer   int
	}{{[]string{rows}, 2 * 3}, {[]string{caches}, 2 * 4}, {nil, 2 * 7}} {
		calls, got := decodeStep(t, on, c.without...)
		if calls != all-c.fewer {
			t.Errorf("without %q there are %d calls, want %d fewer than %d", c.without, calls, c.fewer, all)
		}
		if !slices.Equal(got, want) {
			t.Errorf("without %q the numbers differ", c.without)
		}
	}
}

// TestQueriesOfATableOfTheirOwn: rotations by two tables are not merged with the caches, which has one.
func TestQueriesOfATableOfTheirOwn(t *testing.T) {
	on := NewRehearsal(2)
	defer on.Close()
	const caches = "fuse rotations and caches"
	_, other := decodeStep(t, on)
	calls, got := decodeStepOf(t, on, "table of queries")
	apart, want := decodeStepOf(t, on, "table of queries", caches)
	if calls != apart || !slices.Equal(got, want) || slices.Equal(got, other) {
		t.Errorf("%d calls, without the pass %d; equal %v, and to one table's %v", calls, apart,
			slices.Equal(got, want), slices.Equal(got, other))
	}
}
