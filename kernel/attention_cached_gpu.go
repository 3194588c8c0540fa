//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// cached binds attention over keys with sequence bounds of their own.
func (o Attention) cached(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, N, S, D := in[0].Shape[0], in[1].Shape[0], in[3].Shape[0]-1, in[0].Shape[1]/o.Heads
	if elem := in[0].DType.String(); cuda.ServesPrompt(elem, M, S) {
		return o.prompt(g, elem, in, out)
	}
	if a, ok, err := cuda.NewAttentionSplit(M, o.Heads, D, o.Longest, o.Cap > 0); ok || err != nil {
		return o.split(g, a, in, out, err)
	}
	at, err := cuda.AttentionCached(M, o.Heads, D, o.Cap > 0)
	if err != nil {
		return nil, err
	}
	args := []any{out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, in[4].Ptr,
		int32(M), int32(N), int32(S), int32(o.Heads), int32(o.KVHeads), int32(D)}
	return g.Launch(at, append(args, o.scores()...)...)
}

// prompt binds attention of a piece of one prompt over its cache.
func (o Attention) prompt(g *GPU, elem string, in, out []DeviceTensor) (func() error, error) {
	M, N, D := in[0].Shape[0], in[1].Shape[0], in[0].Shape[1]/o.Heads
	family, err := cuda.AttentionFamily(elem, g.Device.SM(), D)
	if err != nil {
		return nil, err
	}
	a, err := cuda.NewAttentionPrompt(family, M, o.Heads, D, o.Cap > 0)
	if err != nil {
		return nil, err
	}
	args := []any{out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr}
	m := o.maps(g, D)
	if family == cuda.Hopper {
		args = []any{out[0].Ptr, out[1].Ptr, m.q(in[0], a.BoxesQ), m.k(in[1], a.BoxesK), m.k(in[2], a.BoxesK)}
	}
	args = append(args, in[3].Ptr, in[4].Ptr, int32(M), int32(N), int32(o.Heads), int32(o.KVHeads), int32(D))
	return m.launch(a.Geometry, append(args, o.scores()...))
}

// split binds attention whose keys are divided among blocks.
func (o Attention) split(g *GPU, a cuda.AttentionSplit, in, out []DeviceTensor, err error) (func() error, error) {
	if err != nil {
		return nil, err
	}
	M, N, S, D := in[0].Shape[0], in[1].Shape[0], in[3].Shape[0]-1, in[0].Shape[1]/o.Heads
	part, stat := g.Scratch, g.Scratch.Add(a.PartBytes)
	args := []any{part, stat, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, in[4].Ptr,
		int32(M), int32(N), int32(S), int32(o.Heads), int32(o.KVHeads), int32(D), int32(a.Span)}
	parts, err := g.Launch(a.Part, append(args, o.scores()...)...)
	if err != nil {
		return nil, err
	}
	join, err := g.Launch(a.Join, out[0].Ptr, out[1].Ptr, part, stat, int32(M), int32(o.Heads), int32(D), int32(a.Z))
	if err != nil {
		return nil, err
	}
	return inOrder(parts, join), nil
}
