//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (RMSNorm) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType, F32}
}

func (o RMSNorm) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := normedRows(in)
	if o.Heads > 1 && cuda.FitsHeads(C) {
		geometry, lanes := cuda.RMSNormHeads("rmsnorm_heads_forward", M, C)
		return g.Launch(geometry, out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, int64(M), int32(C), int32(lanes), float32(o.Eps))
	}
	return g.Launch(cuda.RMSNorm("rmsnorm_forward", M, C), out[0].Ptr, out[1].Ptr, in[0].Ptr, gpu.Ptr(0), in[1].Ptr, int32(C), float32(o.Eps))
}

// normedRows are the rows that are normed, or the heads of all rows, and the elements of one: the weight's.
func normedRows(in []DeviceTensor) (rows, size int) {
	size = in[1].Shape[0]
	return in[0].Elems() / max(size, 1), size
}

func (RMSNormLowBits) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, U8}, []DType{ComputeType, F32}
}

func (o RMSNormLowBits) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm("rmsnorm_forward", M, C), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[2].Ptr, in[1].Ptr, int32(C), float32(o.Eps))
}

func (o AddRMSNorm) Stored(in []DType) (want, out []DType) {
	want, out = []DType{ComputeType, term(in[1]), ComputeType}, []DType{ComputeType}
	if o.Carried {
		want = append(want, U8)
	}
	if o.LowBits {
		out = append(out, U8)
	}
	return want, append(out, ComputeType, F32)
}

func (o AddRMSNorm) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	y, rstd := out[len(out)-2], out[len(out)-1]
	var from, to gpu.Ptr
	if o.Carried {
		from = in[3].Ptr
	}
	if o.LowBits {
		to = out[1].Ptr
	}
	entry := "rmsnorm_add_forward"
	if in[1].DType == F32 {
		entry = "rmsnorm_add_wide_forward"
	}
	return g.Launch(cuda.RMSNorm(entry, M, C), y.Ptr, out[0].Ptr, to, rstd.Ptr, in[0].Ptr, from, in[1].Ptr, in[2].Ptr, int32(C), float32(o.Eps))
}

func (RMSNormGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, ComputeType}, []DType{ComputeType}
}

func (o RMSNormGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return rmsnormBackward(g, o.Heads, in, out, 0)
}

func (RMSNormGradTo) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, F32, ComputeType, ComputeType}, []DType{ComputeType}
}

func (o RMSNormGradTo) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return rmsnormBackward(g, o.Heads, in, out, in[4].Ptr)
}

func rmsnormBackward(g *GPU, heads int, in, out []DeviceTensor, add gpu.Ptr) (func() error, error) {
	M, C := normedRows(in)
	if heads > 1 && cuda.FitsHeads(C) {
		geometry, lanes := cuda.RMSNormHeads("rmsnorm_heads_backward", M, C)
		return g.Launch(geometry, out[0].Ptr, in[3].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, add, int64(M), int32(C), int32(lanes))
	}
	return g.Launch(cuda.RMSNorm("rmsnorm_backward", M, C), out[0].Ptr, in[3].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, add, int32(C))
}
