//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (Embedding) Stored([]DType) (want, out []DType) {
	return []DType{I32, ComputeType}, []DType{ComputeType}
}

func (Embedding) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, V, C := in[0].Shape[0], in[1].Shape[0], in[1].Shape[1]
	return g.Launch(cuda.Embedding(M, C), out[0].Ptr, in[1].Ptr, in[0].Ptr, int32(V), int32(C))
}
