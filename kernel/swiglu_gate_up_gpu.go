//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (SwiGLUGateUp) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, F := out[0].Shape[0], out[0].Shape[1]
	return g.Launch(cuda.Swiglu("swiglu_forward", M, F), out[0].Ptr, in[0].Ptr, in[0].half(), int32(M), int32(F), int32(2*F))
}

func (SwiGLUGateUpGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, F := in[1].Shape[0], in[1].Shape[1]
	return g.Launch(cuda.SwigluGradRows(M, F), out[0].Ptr, out[0].half(), in[0].Ptr, in[0].half(), in[1].Ptr, int32(F), int32(2*F))
}

// half is where the second half of the first row begins.
func (t DeviceTensor) half() gpu.Ptr { return t.Ptr.Add(int64(t.Shape[1] / 2 * t.DType.Size())) }
