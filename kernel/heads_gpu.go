//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
)

func (o SplitHeads) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return HeadShares(o).move(g, "heads_split", in, out[0], in[0].Shape[0])
}

func (o JoinHeads) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return HeadShares(o).move(g, "heads_join", out, in[0], out[0].Shape[0])
}

// move is a launch for each part of a row of a rank's heads, in M rows of each matrix apart.
func (o HeadShares) move(g *GPU, entry string, apart []DeviceTensor, together DeviceTensor, M int) (func() error,
	error) {
	_, heads := o.widths()
	W, size := together.Shape[1], together.DType.Size()
	D := W / heads
	var work []func() error
	for _, p := range o.parts() {
		x := apart[p.input]
		one, whole := together.Ptr.Add(int64(p.first*D*size)), x.Ptr.Add(int64(p.at*D*size))
		to, from, n := one, whole, o.Ranks*p.own
		if entry == "heads_join" {
			to, from, n = whole, one, p.heads
		}
		launch, err := g.Launch(cuda.Heads(entry, M, n, D), to, from, int32(M), int32(o.Ranks), int32(x.Shape[1]),
			int32(W), int32(p.own), int32(p.heads), int32(D), int32(cuda.HeadsUnit(D)))
		if err != nil {
			return nil, err
		}
		work = append(work, launch)
	}
	return inOrder(work...), nil
}

func (o HeadColumns) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return o.move(g, "head_columns_take", in, out)
}

func (o HeadColumns) move(g *GPU, entry string, in, out []DeviceTensor) (func() error, error) {
	heads := int64(in[0].Shape[0]) * int64(o.Heads)
	at, unit := cuda.HeadColumns(entry, heads, o.Of, o.From, o.Width)
	return g.Launch(at, out[0].Ptr, in[0].Ptr, uint32(heads), int32(o.Of), int32(o.From), int32(o.Width), int32(unit))
}

func (o HeadColumnsGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return HeadColumns(o).move(g, "head_columns_spread", in, out)
}

func (o HeadGate) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	heads, D := o.heads(in)
	return g.Launch(cuda.HeadGate("head_gate_forward", heads, D), out[0].Ptr, in[0].Ptr, in[1].Ptr, uint32(heads),
		int32(D))
}

// heads counts those of all rows, and the columns of one.
func (o HeadGate) heads(in []DeviceTensor) (heads int64, D int) {
	return int64(in[0].Shape[0]) * int64(o.Heads), in[0].Shape[1] / o.Heads
}

func (o HeadGateGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	heads, D := HeadGate(o).heads(in)
	return g.Launch(cuda.HeadGate("head_gate_grad", heads, D), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr,
		uint32(heads), int32(D))
}
