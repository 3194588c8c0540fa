//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (SwiGLU) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, F := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.Swiglu("swiglu_forward", M, F), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M), int32(F), int32(F))
}

func (SwiGLUGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[0].Elems())
	return g.Launch(cuda.Flat("swiglu_grad", "swiglu_grad", (n+7)/8), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr,
		in[2].Ptr, n)
}

func (SwiGLUGateUp) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, F := out[0].Shape[0], out[0].Shape[1]
	return g.Launch(cuda.Swiglu("swiglu_forward", M, F), out[0].Ptr, in[0].Ptr, in[0].half(), int32(M), int32(F),
		int32(2*F))
}

func (SwiGLUGateUpGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, F := in[1].Shape[0], in[1].Shape[1]
	return g.Launch(cuda.SwigluGradRows(M, F), out[0].Ptr, out[0].half(), in[0].Ptr, in[0].half(), in[1].Ptr, int32(F),
		int32(2*F))
}

// half returns where the second half of the first row begins.
func (t DeviceTensor) half() gpu.Ptr { return t.Ptr.Add(int64(t.Shape[1] / 2 * t.DType.Size())) }

func (ClampedSwiGLU) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.ClampedSwiGLU("swiglu_clamped_forward", n), out[0].Ptr, in[0].Ptr, n)
}

func (ClampedSwiGLUGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[1].Elems())
	return g.Launch(cuda.ClampedSwiGLU("swiglu_clamped_grad", n), out[0].Ptr, in[0].Ptr, in[1].Ptr, n)
}
