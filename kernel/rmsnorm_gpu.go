//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (RMSNorm) Stored([]DType) (want, out []DType) { return []DType{BF16, BF16}, []DType{BF16, F32} }

func (o RMSNorm) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm("rmsnorm_forward", M, C), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, int32(C), float32(o.Eps))
}

func (RMSNormGrad) Stored([]DType) (want, out []DType) {
	return []DType{BF16, BF16, F32, BF16}, []DType{BF16}
}

func (RMSNormGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm("rmsnorm_backward", M, C), out[0].Ptr, in[3].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, gpu.Ptr(0), int32(C))
}
