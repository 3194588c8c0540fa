package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// fp8Checks returns GEMMs of 8-bit floats with 4-bit weights. The reference multiplies the same rounded numbers in
// float64, so that only the sums and the rounding of the result differ.
func fp8Checks() []check {
	n := newNumbers()
	var all []check
	for _, size := range [][3]int{{16, 128, 64}, {272, 256, 192}, {48, 384, 1088}} {
		M := size[0]
		for _, c := range packedStores[:5] {
			source := n.normal32(0.5, size[1], size[2])
			row := make([]float32, len(source.values))
			for i, x := range source.values {
				row[i] = float32(x)
			}
			packed, err := quantised(row, size[1], size[2], c)
			if err != nil {
				panic(err) // a broken list of checks
			}
			for _, transposed := range []bool{false, true} {
				all = append(all, fp8Pair(n, M, packed, c, transposed)...)
			}
		}
	}
	return all
}

// fp8Pair returns the checks of a product and of one that is added to activations.
func fp8Pair(n checkNumbers, M int, p quant.Packed, c quant.Config, transposed bool) []check {
	in, out, what := p.Cols, p.Rows, "x Wᵀ"
	if transposed {
		in, out, what = out, in, "x W"
	}
	name := fmt.Sprintf("%s, [%d,%d,%d]%s", what, M, out, in, storeName(c))
	weight := kernel.MatMulNF4{N: p.Rows, K: p.Cols, Nested: c.DoubleQuant, Transposed: transposed, Map: c.Map,
		FP4: c.Type == "fp4"}
	inputs := append([]checkInput{n.normal(1, M, in)}, packedInputs(p)...)
	parts := len(inputs)
	rows := func(g *graph.Builder, in []*graph.Value) ([]*graph.Value, kernel.MatMulFP8) {
		q := g.ApplyAll(kernel.QuantiseRows{}, in[0])
		return append([]*graph.Value{q[0], q[1]}, in[1:parts]...), kernel.MatMulFP8{Weight: weight, Float: g.Float()}
	}
	return []check{
		{kernel: "fp8", name: name, bounds: []bound{rounded}, in: inputs, fp8: true,
			build: func(g *graph.Builder, in []*graph.Value) []*graph.Value {
				operands, k := rows(g, in)
				return g.ApplyAll(k, operands...)
			}},
		{kernel: "fp8", name: name + " onto activations", bounds: []bound{rounded}, fp8: true,
			in: append(inputs[:parts:parts], n.normal(2, M, out), zeros(M, out)),
			build: func(g *graph.Builder, in []*graph.Value) []*graph.Value {
				operands, k := rows(g, in)
				return g.ApplyAll(kernel.Onto[kernel.MatMulFP8]{Of: k},
					append(operands, g.Apply(kernel.Add{}, in[parts], in[parts+1]))...)
			}},
	}
}
