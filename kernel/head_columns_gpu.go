//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

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
