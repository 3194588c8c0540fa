//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU runs a block for each matrix, and also writes the parameters' copy in 16 bits. The clip factor follows the norm.
func (k Muon) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	x, gram := placesOf(k.Matrices, MuonPlaces)
	flags := int32(0)
	if k.Nesterov {
		flags |= 1
	}
	if k.MatchRMS {
		flags |= 2
	}
	return g.Launch(cuda.PerMatrix("muon", "muon_step", len(k.Matrices)), out[0].Ptr, out[1].Ptr, g.Copy, in[1].Ptr,
		in[3].Ptr, g.Scratch, g.Scratch.Add(int64(4*x)), int64(x), int64(gram), in[5].Ptr, in[4].Ptr.Add(4),
		float32(k.Momentum), float32(1-k.Momentum), float32(k.WeightDecay), flags)
}
