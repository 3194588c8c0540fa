package graph

import (
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// halfCache stores what KVAppend writes as bf16, as a GPU does.
type halfCache struct{ hostTarget }

func (halfCache) stored(k kernel.Kernel, in, declared []kernel.DType) (want, out []kernel.DType, err error) {
	switch k.(type) {
	case kernel.KVAppend:
		return []kernel.DType{kernel.BF16, in[1], kernel.I32}, []kernel.DType{kernel.BF16}, nil
	case kernel.Add:
		return []kernel.DType{kernel.F32, kernel.F32}, []kernel.DType{kernel.F32}, nil
	}
	return in, declared, nil
}

// TestCacheIsStoredAsRead: a state that no gradient reaches takes its first reader's type, and later readers
// of another type are refused.
func TestCacheIsStoredAsRead(t *testing.T) {
	build := func(early, late bool) (*Plan, error) {
		b := NewBuilder(kernel.F32)
		cache := b.State("cache", "cache", kernel.T(kernel.F32, 64, 8))
		rows, start := b.Batch("rows", kernel.T(kernel.F32, 64, 8)), b.Batch("start", kernel.T(kernel.I32, 64))
		var outputs []*Value
		if early {
			outputs = append(outputs, b.Apply(kernel.Add{}, cache, rows))
		}
		held := b.Apply(kernel.KVAppend{}, cache, rows, start)
		if outputs = append(outputs, held); late {
			outputs = append(outputs, b.Apply(kernel.Add{}, held, rows))
		}
		return b.compile(halfCache{}, true, outputs)
	}
	p, err := build(false, false)
	if err != nil {
		t.Fatal(err)
	}
	need, err := Need(p)
	if err != nil {
		t.Fatal(err)
	}
	if need.State["cache"] != 64*8*2 {
		t.Errorf("the cache takes %d bytes, want 1024", need.State["cache"])
	}
	for _, c := range [][2]bool{{true, false}, {false, true}} {
		if _, err := build(c[0], c[1]); err == nil || !strings.Contains(err.Error(), "it is stored as") {
			t.Errorf("read as float32 before %v, after %v: %v", c[0], c[1], err)
		}
	}
}
