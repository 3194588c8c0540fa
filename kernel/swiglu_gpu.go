//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (SwiGLU) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, F := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.Swiglu("swiglu_forward", M, F), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M), int32(F), int32(F))
}

func (SwiGLUGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[0].Elems())
	return g.Launch(cuda.Flat("swiglu_grad", "swiglu_grad", (n+7)/8), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, n)
}
