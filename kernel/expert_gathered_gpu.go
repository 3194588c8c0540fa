//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (k ExpertWeightGradGathered) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k ExpertWeightGradGathered) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	n, width := in[0].Shape[1], in[1].Shape[1]
	at := cuda.ExpertWeightGathered(n, width, k.Experts, in[0].DType == F32)
	return g.Launch(at, out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, int32(n), int32(width), int32(k.PerToken), int32(in[1].Shape[0]),
		float32(MatMul{Alpha: k.Alpha}.alpha()), beta)
}

func (k ExpertWeightGradGatheredTo) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return ExpertWeightGradGathered(k).bindGPU(g, in, out, 1)
}
