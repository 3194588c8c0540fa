//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU sums each sequence in one block.
func (SequenceSums) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, S := in[1].Shape[0], in[2].Shape[0]-1
	rows := in[0].Elems() / max(M, 1)
	if S == 0 {
		return inOrder(), nil
	}
	return g.Launch(cuda.SequenceSums(S, rows), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(M),
		int32(S))
}

// GPU looks up each token's sequence.
func (SequenceSumsGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, S := in[0].Shape[0], in[1].Shape[0]-1
	return g.Launch(cuda.SequenceSumsGradient(M), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(M), int32(S),
		int32(out[0].Elems()/max(M, 1)))
}
