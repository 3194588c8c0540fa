//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (o PositionsByLength) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	place, err := g.share(o.Ranks)
	if err != nil {
		return nil, err
	}
	M, S := in[0].Shape[0], in[1].Shape[0]-1
	return g.Launch(cuda.Flat("positions", "positions_by_length", int64(M)), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M), int32(S), int32(o.Limit), int32(o.Offset), int32(place*M))
}
