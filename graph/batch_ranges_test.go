package graph

import (
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// TestBatchRanges: a Put sends small values and the large ones that it names, in few copies.
func TestBatchRanges(t *testing.T) {
	l := &inputLayout{offset: map[string]int64{}, typ: map[string]kernel.Type{}, kind: map[string]Kind{}}
	add := func(name string, at int64, kind Kind, elems int) {
		l.names = append(l.names, name)
		l.offset[name], l.kind[name], l.typ[name] = at, kind, kernel.T(kernel.F32, elems)
	}
	add("ids", 0, Batch, 8)
	add("rows", 256, Batch, largeBatch/4)
	add("positions", 256+largeBatch, Batch, 8)
	add("more rows", 512+largeBatch, Batch, largeBatch/4)
	add("weight", 0, Frozen, largeBatch)
	for _, c := range []struct {
		names []string
		want  []byteRange
	}{
		{[]string{"ids"}, []byteRange{{0, 256}, {256 + largeBatch, 512 + largeBatch}}},
		{[]string{"rows", "ids"}, []byteRange{{0, 512 + largeBatch}}},
		{[]string{"more rows"}, []byteRange{{0, 256}, {256 + largeBatch, 512 + 2*largeBatch}}},
		{[]string{"rows", "more rows"}, []byteRange{{0, 512 + 2*largeBatch}}},
	} {
		if got := l.batchRanges(c.names); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.names, got, c.want)
		}
	}
}
