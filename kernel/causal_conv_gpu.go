//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (CausalConv) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, K, S := convSizes(in)
	at, rows := cuda.CausalConv(M, C, K, false)
	return g.Launch(at, out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(M), int32(C), int32(S), int32(rows),
		int32(K))
}

// convSizes returns the rows, columns and taps of a convolution over S sequences.
func convSizes(in []DeviceTensor) (M, C, K, S int) {
	return in[0].Shape[0], in[0].Shape[1], in[1].Shape[1], in[2].Shape[0] - 1
}

func (CausalConvGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, K, S := convSizes(in)
	at, rows := cuda.CausalConv(M, C, K, true)
	return g.Launch(at, out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, int32(M), int32(C), int32(S),
		int32(rows), int32(K))
}

func (o CausalConvCached) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, K, S := convSizes(in)
	at, rows := cuda.CausalConvCached(M, C, K, S)
	return g.Launch(at, out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr,
		int32(M), int32(C), int32(S), int32(in[4].Shape[0]), int32(o.Tokens), int32(rows), int32(K))
}
