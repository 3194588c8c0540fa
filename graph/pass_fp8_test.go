package graph

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// packedLayer records two 4-bit weights that read the same rows, a third that is too narrow for 8-bit floats, and a
// low-rank update of the rows; the gradient flows through all of them.
func packedLayer(b *Builder, tokens int) []*Value {
	const wide, narrow = 1024, 256
	packed := func(name string, n int, x *Value) *Value {
		k := kernel.MatMulNF4{N: n, K: wide, Nested: true}
		in := []*Value{x}
		for i, size := range []kernel.Type{kernel.T(kernel.U8, n*wide/2), kernel.T(kernel.U8, n*wide/64),
			kernel.T(kernel.F32, n*wide/64/256), kernel.T(kernel.F32, 1)} {
			in = append(in, b.Frozen(fmt.Sprintf("%s.%d", name, i), size))
		}
		return b.Apply(k, in...)
	}
	A, B := b.Param("p", "A", kernel.T(kernel.F32, 8, wide)), b.Param("p", "B", kernel.T(kernel.F32, wide, 8))
	x := b.Apply(kernel.Embedding{Float: kernel.F32}, b.Batch("ids", kernel.T(kernel.I32, tokens)),
		b.Frozen("words", kernel.T(kernel.F32, 64, wide)))
	mul := kernel.MatMul{TransB: true}
	x = b.Apply(kernel.Add{}, x, b.Apply(mul, b.Apply(mul, x, A), B))
	gate, up := packed("gate", wide, x), packed("up", wide, x)
	y := b.Apply(kernel.SwiGLU{}, gate, b.Apply(kernel.Add{}, up, b.Apply(mul, b.Apply(mul, x, A), B)))
	y = packed("down", narrow, y)
	loss := b.Apply(kernel.LinearCrossEntropy{Chunk: 256, Grad: true}, y, b.Frozen("head", kernel.T(kernel.F32, 64, narrow)),
		b.Batch("labels", kernel.T(kernel.I32, tokens)), b.Batch("scale", kernel.T(kernel.F32, 1)))
	return append([]*Value{loss}, b.Grad(loss, A, B)...)
}

// TestFrozenGEMMsOfFP8 counts the calls of plans: GEMMs of one input share its rounded rows, in the backward pass each
// weight has its own, and what is narrow or has few rows stays as it is.
func TestFrozenGEMMsOfFP8(t *testing.T) {
	for _, c := range []struct {
		precision kernel.Precision
		tokens    int
		want      map[string]int
	}{
		{kernel.PrecisionBF16, 512, map[string]int{"nf4": 6}},
		{kernel.PrecisionFP8, 512, map[string]int{"nf4": 2, "fp8": 4, "fp8_rows": 3}},
		{kernel.PrecisionFP8, 264, map[string]int{"nf4": 6}}, // no multiple of 16
		{kernel.PrecisionFP8, 240, map[string]int{"nf4": 6}},
	} {
		on, err := NewChip(DefaultChip(), 2, c.precision)
		if err != nil {
			t.Fatal(err)
		}
		b := NewBuilder(kernel.F32)
		p, err := on.Compile(b, packedLayer(b, c.tokens)...)
		if err != nil {
			t.Fatalf("%v, %d tokens: %v", c.precision, c.tokens, err)
		}
		got := map[string]int{}
		for _, call := range p.calls {
			if name := call.kernel.Name(); name == "nf4" || strings.HasPrefix(name, "fp8") {
				got[name]++
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%v, %d tokens: calls %v, want %v", c.precision, c.tokens, got, c.want)
		}
	}
}

// TestFP8NeedsHopper plans for a GPU that 8-bit frozen GEMMs were not run on.
func TestFP8NeedsHopper(t *testing.T) {
	const want = "training.frozen_gemm: fp8 needs compute capability 9.0 (H100, H200), this GPU has 8.9: use bf16"
	if _, err := NewChip(Chip{SM: 89}, 2, kernel.PrecisionFP8); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
