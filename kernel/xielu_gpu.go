//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU launches xielu_forward.
func (XIELU) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[0].Elems())
	return g.Launch(cuda.Flat("xielu", "xielu_forward", (n+7)/8), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr,
		in[3].Ptr, in[4].Ptr, n)
}

// GPU launches xielu_grad.
func (XIELUGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[0].Elems())
	return g.Launch(cuda.Flat("xielu", "xielu_grad", (n+7)/8), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr,
		in[3].Ptr, in[4].Ptr, in[5].Ptr, n)
}
