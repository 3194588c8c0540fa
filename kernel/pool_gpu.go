//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU takes the mean of each sequence, some columns in a block.
func (Pool) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, S := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	if S == 0 {
		return inOrder(), nil
	}
	return g.Launch(cuda.Pool(S, C), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M), int32(C))
}

// GPU looks up each token's sequence.
func (PoolGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, S := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	return g.Launch(cuda.PoolGradient(M, C), out[0].Ptr, in[1].Ptr, in[2].Ptr, int32(M), int32(C), int32(S))
}
