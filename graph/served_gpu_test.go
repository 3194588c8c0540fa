package graph_test

import (
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// TestUnservedHeadSizes: a head size that no kernel has is an error of planning, before memory is taken or a weight
// loaded; that of a cache too.
func TestUnservedHeadSizes(t *testing.T) {
	const M, heads, kv = 16, 4, 2
	i32 := func(n int) kernel.Type { return kernel.T(kernel.I32, n) }
	f32 := func(width int) kernel.Type { return kernel.T(kernel.F32, M, width) }
	plain := kernel.Attention{Heads: heads, KVHeads: kv, Scale: 1}
	for what, build := range map[string]func(b *graph.Builder, D int) *graph.Value{
		"attention": func(b *graph.Builder, D int) *graph.Value {
			k := b.Frozen("k", f32(kv*D))
			cu := b.Batch("cu", i32(2))
			return b.Apply(plain, b.Frozen("q", f32(heads*D)), k, k, cu, cu)
		},
		"attention over a cache": func(b *graph.Builder, D int) *graph.Value {
			k := b.Frozen("k", f32(kv*D))
			return b.Apply(plain, b.Frozen("q", f32(heads*D)), k, k, b.Batch("cu", i32(2)), b.Batch("keys", i32(2)))
		},
		"attention_qkv": func(b *graph.Builder, D int) *graph.Value {
			return b.Apply(kernel.AttentionQKV(plain), b.Frozen("qkv", f32((heads+2*kv)*D)), b.Batch("cu", i32(2)))
		},
	} {
		for D, served := range map[int]bool{8: true, 96: true, 256: true, 264: true, 512: true, 12: false, 260: false,
			520: false} {
			on, err := graph.NewChip(graph.Chip{SM: 90}, 1, kernel.PrecisionBF16)
			if err != nil {
				t.Fatal(err)
			}
			b := graph.NewBuilder(kernel.F32)
			_, err = on.Compile(b, build(b, D))
			if served != (err == nil) || !served && !strings.Contains(err.Error(),
				"is not supported on the GPU; multiples of 8 up to 512 are") {
				t.Errorf("%s with heads of %d: %v", what, D, err)
			}
		}
	}
}
