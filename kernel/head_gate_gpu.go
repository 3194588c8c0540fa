//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (o HeadGate) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	heads, D := o.heads(in)
	return g.Launch(cuda.HeadGate("head_gate_forward", heads, D), out[0].Ptr, in[0].Ptr, in[1].Ptr, uint32(heads), int32(D))
}

// heads counts those of all rows, and the columns of one.
func (o HeadGate) heads(in []DeviceTensor) (heads int64, D int) {
	return int64(in[0].Shape[0]) * int64(o.Heads), in[0].Shape[1] / o.Heads
}

func (o HeadGateGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	heads, D := HeadGate(o).heads(in)
	return g.Launch(cuda.HeadGate("head_gate_grad", heads, D), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, uint32(heads), int32(D))
}
