//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (o Embedding) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, V, C := in[0].Shape[0], in[1].Shape[0], in[1].Shape[1]
	if o.Scale != 0 {
		scale := roundedTo(g.Precision.Stored(ComputeType), o.Scale)
		return g.Launch(cuda.ScaledEmbedding(M, C), out[0].Ptr, in[1].Ptr, in[0].Ptr, int32(V), int32(C), scale)
	}
	return g.Launch(cuda.Embedding(M, C), out[0].Ptr, in[1].Ptr, in[0].Ptr, int32(V), int32(C))
}

// GPU clears the gradient, and adds up the rows of each id in the block of its first place.
func (o EmbeddingGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return o.bindGPU(g, in, out, 0)
}

func (o EmbeddingGrad) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	M, V, C := in[0].Shape[0], out[0].Shape[0], out[0].Shape[1]
	scale := float32(1)
	if o.Scale != 0 {
		scale = roundedTo(g.Precision.Stored(ComputeType), o.Scale)
	}
	add, err := g.Launch(cuda.EmbeddingGrad(M, C), out[0].Ptr, in[2].Ptr, in[0].Ptr, int32(M), int32(V), int32(C),
		scale)
	if err != nil || beta != 0 {
		return add, err
	}
	s, p, n := g.Stream, out[0].Ptr, out[0].Bytes()
	return inOrder(func() error { return s.Fill(p, 0, n) }, add), nil
}

// roundedTo returns x as the nearest number of a type.
func roundedTo(d DType, x float64) float32 {
	switch f := float32(x); d {
	case BF16:
		return FromBF16(ToBF16(f))
	case F16:
		return FromF16(ToF16(f))
	default:
		return f
	}
}
