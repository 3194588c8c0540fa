//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// sizes returns the rows, columns, filtered columns, first of them, sequences and taps of a convolution.
func (o ColumnsConv) sizes(in []DeviceTensor) []any {
	return []any{int32(in[0].Shape[0]), int32(in[0].Shape[1]), int32(in[1].Shape[0]), int32(o.From),
		int32(in[3].Shape[0] - 1), int32(in[1].Shape[1])}
}

// GPU binds the launch.
func (o ColumnsConv) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return g.Launch(cuda.ColumnsConv("columns_conv", in[0].Shape[0], in[0].Shape[1]),
		append([]any{out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr}, o.sizes(in)...)...)
}

// GPU binds the launch.
func (o ColumnsConvGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return g.Launch(cuda.ColumnsConv("columns_conv_grad", in[0].Shape[0], in[0].Shape[1]),
		append([]any{out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, in[4].Ptr},
			ColumnsConv(o).sizes(in)...)...)
}

// GPU binds the launch.
func (o ColumnsConvCached) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, W, C, K, S := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0], in[1].Shape[1], in[3].Shape[0]-1
	return g.Launch(cuda.ColumnsConvCached(W, S), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr,
		in[4].Ptr, int32(M), int32(W), int32(C), int32(o.From), int32(S), int32(in[5].Shape[0]), int32(o.Tokens),
		int32(K))
}
