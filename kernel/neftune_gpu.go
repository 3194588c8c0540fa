//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU adds the noise, four columns a thread.
func (NEFTune) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.Flat("neftune", "neftune_add", int64(M)*int64((C+3)/4)), out[0].Ptr, in[0].Ptr, in[1].Ptr,
		in[2].Ptr, in[3].Ptr, in[4].Ptr, int64(neftuneStream), int32(M), int32(C))
}
