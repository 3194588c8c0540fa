//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (GeGLU) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

func (GeGLU) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, F := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.Flat("geglu", "geglu_forward", (int64(M)*int64(F)+7)/8), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M), int32(F), int32(F))
}

func (GeGLUGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType}, []DType{ComputeType, ComputeType}
}

func (GeGLUGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[0].Elems())
	return g.Launch(cuda.Flat("geglu_grad", "geglu_grad", (n+7)/8), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, n)
}
