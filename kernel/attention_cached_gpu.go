//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// cached binds attention over keys with sequence bounds of their own.
func (o Attention) cached(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, N, S, D := in[0].Shape[0], in[1].Shape[0], in[3].Shape[0]-1, in[0].Shape[1]/o.Heads
	at, err := cuda.AttentionCached(M, o.Heads, D, o.Cap > 0)
	if err != nil {
		return nil, err
	}
	args := []any{out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, in[4].Ptr,
		int32(M), int32(N), int32(S), int32(o.Heads), int32(o.KVHeads), int32(D)}
	return g.Launch(at, append(args, o.scores()...)...)
}
