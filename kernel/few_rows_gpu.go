//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (o FewRows) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	parts, inputs, _ := members(o, in)
	M, K := in[0].Shape[0], in[0].Shape[1]
	if cuda.SkinnyTiled(M) {
		return o.tiled(g, parts, inputs, out)
	}
	var sizes, args []any
	var widths []int
	kind := "skinny_each"
	if o.Gated {
		kind = "skinny_gated"
	}
	nf4, packed := parts[0].(MatMulNF4)
	for i := range 3 {
		if i >= len(parts) {
			if !o.Gated { // a matrix of no rows
				args, sizes = append(args, args[len(args)-len(args)/i:]...), append(sizes, int32(0))
			}
			continue
		}
		width := 0
		switch p := parts[i].(type) {
		case MatMul:
			width = inputs[i][1].Shape[0]
		case MatMulNF4:
			width = p.N
		}
		for _, t := range inputs[i][1:] {
			if t.Ptr%16 != 0 && t.Shape[0] != 1 {
				return nil, fmt.Errorf("a weight lies at %x, want multiples of 16", t.Ptr)
			}
			args = append(args, t.Ptr)
		}
		widths = append(widths, width)
		if i == 0 || !o.Gated {
			sizes = append(sizes, int32(width))
		}
	}
	var head []any
	for i := range 3 {
		if i < len(out) {
			head = append(head, out[i].Ptr)
		} else if !o.Gated {
			head = append(head, out[0].Ptr)
		}
	}
	head = append(head, in[0].Ptr)
	if packed {
		kind, head = kind+"_nf4", append(head, g.nf4Codes(nf4.FP4))
		if nf4.Nested {
			kind, head = kind+"_nested", append(head, g.nf4Map(nf4.Map))
		}
	}
	args = append(append(append(head, args...), int32(M)), sizes...)
	return g.Launch(cuda.SkinnySeveral(kind, M, widths, o.Gated), append(args, int32(K))...)
}

// tiled binds the GEMMs as a launch of skinny_tile_*.
func (o FewRows) tiled(g *GPU, parts []Kernel, inputs [][]DeviceTensor, out []DeviceTensor) (func() error, error) {
	x := inputs[0][0]
	t := skinnyTile{M: x.Shape[0], K: x.Shape[1], gated: o.Gated, alpha: 1, out: out[0].DType}
	var tables []any
	var weights [][]any
	for i, p := range parts {
		n := inputs[i][1].Shape[0]
		if k, ok := p.(MatMulNF4); ok {
			n = k.N
			t.store, tables = k.skinnyTables(g)
		}
		t.N = append(t.N, n)
		var weight []any
		for _, w := range inputs[i][1:] {
			if w.Ptr%16 != 0 && w.Shape[0] != 1 {
				return nil, fmt.Errorf("a weight lies at %x, want multiples of 16", w.Ptr)
			}
			weight = append(weight, w.Ptr)
		}
		weights = append(weights, weight)
	}
	var d []gpu.Ptr
	for _, y := range out {
		d = append(d, y.Ptr)
	}
	return t.bind(g, d, x.Ptr, tables, weights)
}
