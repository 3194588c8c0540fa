//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (ShortConv) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, S, K := shortConvSizes(in)
	return g.Launch(cuda.ShortConv("short_conv", M, C), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(M), int32(C),
		int32(S), int32(K))
}

// shortConvSizes returns the rows, columns, sequences and taps of a gated convolution.
func shortConvSizes(in []DeviceTensor) (M, C, S, K int) {
	return in[0].Shape[0], in[1].Shape[0], in[2].Shape[0] - 1, in[1].Shape[1]
}

func (ShortConvGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, S, K := shortConvSizes(in)
	return g.Launch(cuda.ShortConv("short_conv_grad", M, C), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr,
		int32(M), int32(C), int32(S), int32(K))
}

func (o ShortConvCached) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, S, K := shortConvSizes(in)
	return g.Launch(cuda.ShortConvCached(C, S), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr,
		int32(M), int32(C), int32(S), int32(in[4].Shape[0]), int32(o.Tokens), int32(K))
}
