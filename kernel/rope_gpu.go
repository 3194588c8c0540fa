//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
)

// GPU turns in place; where the plan gave the output memory of its own, the input is copied first.
func (o RoPE) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, width, R, D := in[0].Shape[0], in[0].Shape[1], in[1].Shape[1], o.head(in[1].Type)
	sign := float32(1)
	if o.Inverse {
		sign = -1
	}
	table := in[1].Ptr // a row: R/2 cosines, R/2 sines, fp32
	geometry := cuda.Rope(M, o.Heads, 0, R)
	if o.Interleaved {
		geometry = cuda.RopeInterleaved(M, o.Heads, 0, R)
	}
	first := out[0].Ptr.Add(int64(o.From) * int64(out[0].DType.Size()))
	turn, err := g.Launch(geometry, first, first, in[2].Ptr, table, table.Add(int64(R/2)*4),
		int32(M), int32(o.Heads), int32(0), int32(D), int32(R), int32(width), int32(width), int32(R), sign)
	if err != nil || out[0].Ptr == in[0].Ptr {
		return turn, err
	}
	s, from, to, n := g.Stream, in[0].Ptr, out[0].Ptr, in[0].Bytes()
	return inOrder(func() error { return s.Copy(to, from, n) }, turn), nil
}

func (o RoPEAppend) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	q, _ := o.parts()
	M, P, D, R, W := in[0].Shape[0], in[5].Shape[0], q.head(in[3].Type), in[3].Shape[1], in[2].Shape[1]
	return g.Launch(cuda.RopeAppend(M, o.Heads, o.KVHeads, D, R, W), out[0].Ptr, in[1].Ptr, in[2].Ptr, out[1].Ptr,
		out[2].Ptr, in[4].Ptr, in[3].Ptr, in[7].Ptr,
		int32(P), int32(o.Heads), int32(o.KVHeads), int32(D), int32(R), int32(W))
}

func (o PositionsByLength) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	place, err := g.share(o.Ranks)
	if err != nil {
		return nil, err
	}
	M, S := in[0].Shape[0], in[1].Shape[0]-1
	return g.Launch(cuda.Flat("positions", "positions_by_length", int64(M)), out[0].Ptr, in[0].Ptr, in[1].Ptr, int32(M),
		int32(S), int32(o.Limit), int32(o.Offset), int32(place*M))
}
