//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

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
	turn, err := g.Launch(geometry, out[0].Ptr, out[0].Ptr, in[2].Ptr, table, table.Add(int64(R/2)*4),
		int32(M), int32(o.Heads), int32(0), int32(D), int32(R), int32(width), int32(width), int32(R), sign)
	if err != nil || out[0].Ptr == in[0].Ptr {
		return turn, err
	}
	s, from, to, n := g.Stream, in[0].Ptr, out[0].Ptr, in[0].Bytes()
	return inOrder(func() error { return s.Copy(to, from, n) }, turn), nil
}
