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
