package kernel_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// withoutCost are kernels that do not say what a call costs, each with its reason.
var withoutCost = map[string]string{}

// TestEveryKernelSaysItsCost: a kernel is what has Name and CPU.
func TestEveryKernelSaysItsCost(t *testing.T) {
	methods := map[string]map[string]bool{"Name": {}, "CPU": {}, "Cost": {}}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name.Name != "kernel" {
			continue
		}
		for _, d := range f.Decls {
			if m, ok := d.(*ast.FuncDecl); ok && m.Recv != nil && methods[m.Name.Name] != nil {
				if of, ok := m.Recv.List[0].Type.(*ast.Ident); ok {
					methods[m.Name.Name][of.Name] = true
				}
			}
		}
	}
	n := 0
	for name := range methods["Name"] {
		if !methods["CPU"][name] {
			continue
		}
		n++
		if listed := withoutCost[name] != ""; methods["Cost"][name] == listed {
			t.Errorf("%s: it says its cost: %v; listed as lacking: %v", name, !listed, listed)
		}
	}
	if n < 50 {
		t.Errorf("only %d kernels found", n)
	}
}

// TestCost compares with numbers that were worked out by hand.
func TestCost(t *testing.T) {
	f32 := func(shape ...int) kernel.Type { return kernel.T(kernel.F32, shape...) }
	bf16 := func(shape ...int) kernel.Type { return kernel.T(kernel.BF16, shape...) }
	i32 := func(shape ...int) kernel.Type { return kernel.T(kernel.I32, shape...) }
	qkv := []kernel.Type{bf16(6, 8), bf16(6, 4), bf16(6, 4), i32(3), i32(3)}
	for name, c := range map[string]struct {
		kernel  kernel.Costed
		in, out []kernel.Type
		content kernel.Content
		want    kernel.Cost
	}{
		"GEMM": {kernel.MatMul{TransB: true}, []kernel.Type{f32(3, 4), bf16(5, 4)},
			[]kernel.Type{f32(3, 5)}, kernel.Content{}, kernel.Cost{Bytes: 48 + 40 + 60, FLOPs: 120}},
		"GEMM, first transposed": {kernel.MatMul{TransA: true}, []kernel.Type{f32(4, 3), f32(4, 5)},
			[]kernel.Type{f32(3, 5)}, kernel.Content{}, kernel.Cost{Bytes: 48 + 80 + 60, FLOPs: 120}},
		"GEMM added to": {kernel.Onto[kernel.MatMul]{}, []kernel.Type{f32(3, 4), f32(4, 5), f32(3, 5)},
			[]kernel.Type{f32(3, 5)}, kernel.Content{}, kernel.Cost{Bytes: 48 + 80 + 120, FLOPs: 120}},
		"attention, equal": {kernel.Attention{Heads: 2, KVHeads: 1}, qkv, []kernel.Type{bf16(6, 8), f32(2, 6)},
			kernel.Content{}, kernel.Cost{Bytes: 96 + 48 + 48 + 24 + 96 + 48, FLOPs: 4 * 12 * 8}},
		"attention, 1 and 5": {kernel.Attention{Heads: 2, KVHeads: 1}, qkv, []kernel.Type{bf16(6, 8), f32(2, 6)},
			kernel.Content{Starts: []int32{0, 1, 6}}, kernel.Cost{Bytes: 360, FLOPs: 4 * 16 * 8}},
		"attention, window of 2": {kernel.Attention{Heads: 2, KVHeads: 1, Window: 2}, qkv,
			[]kernel.Type{bf16(6, 8), f32(2, 6)}, kernel.Content{Starts: []int32{0, 1, 6}},
			kernel.Cost{Bytes: 360, FLOPs: 4 * 10 * 8}},
		"attention, one new token": {kernel.Attention{Heads: 2, KVHeads: 1},
			[]kernel.Type{f32(1, 8), f32(6, 4), f32(6, 4), i32(2), i32(2)}, []kernel.Type{f32(1, 8), f32(2, 1)},
			kernel.Content{}, kernel.Cost{Bytes: 32 + 96 + 96 + 16 + 32 + 8, FLOPs: 4 * 6 * 8}},
		"embedding": {kernel.Embedding{Float: kernel.F32}, []kernel.Type{i32(3), bf16(100, 4)},
			[]kernel.Type{f32(3, 4)}, kernel.Content{}, kernel.Cost{Bytes: 12 + 24 + 48}},
		"loss of two rows": {kernel.LinearCrossEntropy{Chunk: 4, Grad: true},
			[]kernel.Type{f32(3, 4), f32(7, 4), i32(3), f32(1)}, []kernel.Type{f32(), f32(3, 4), f32(3)},
			kernel.Content{Trained: 2}, kernel.Cost{Bytes: 48 + 112 + 12 + 4 + 4 + 48 + 12, FLOPs: 2 * 7 * (4*4 + 4)}},
		"zero": {kernel.Zero{}, []kernel.Type{f32(9)}, []kernel.Type{f32(9)}, kernel.Content{},
			kernel.Cost{Bytes: 36}},
	} {
		if got := c.kernel.Cost(c.in, c.out, c.content); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
