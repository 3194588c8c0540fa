//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

func (o RMSNorm) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := normedRows(in)
	if o.Heads > 1 && cuda.FitsHeads(C) {
		geometry, lanes := cuda.RMSNormHeads(normEntry(o.PlusOne, "heads_forward"), M, C)
		return g.Launch(geometry, out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, int64(M), int32(C), int32(lanes), float32(o.Eps))
	}
	return g.Launch(cuda.RMSNorm(normEntry(o.PlusOne, "forward"), M, C), out[0].Ptr, out[1].Ptr, in[0].Ptr, gpu.Ptr(0), in[1].Ptr, int32(C), float32(o.Eps))
}

// normEntry is the kernel of a norm whose name ends so.
func normEntry(plusOne bool, end string) string {
	if plusOne {
		return "rmsnorm_plusone_" + end
	}
	return "rmsnorm_" + end
}

// normedRows are the rows that are normed, or the heads of all rows, and the elements of one: the weight's.
func normedRows(in []DeviceTensor) (rows, size int) {
	size = in[1].Shape[0]
	return in[0].Elems() / max(size, 1), size
}

func (o RMSNormLowBits) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm(normEntry(o.PlusOne, "forward"), M, C), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[2].Ptr, in[1].Ptr, int32(C), float32(o.Eps))
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
	end := "add_forward"
	if in[1].DType == F32 {
		end = "add_wide_forward"
	}
	return g.Launch(cuda.RMSNorm(normEntry(o.PlusOne, end), M, C), y.Ptr, out[0].Ptr, to, rstd.Ptr, in[0].Ptr, from, in[1].Ptr, in[2].Ptr, int32(C), float32(o.Eps))
}

func (o RMSNormGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return rmsnormBackward(g, o, in, out, 0)
}

func (o RMSNormGradTo) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return rmsnormBackward(g, RMSNormGrad(o), in, out, in[4].Ptr)
}

func rmsnormBackward(g *GPU, o RMSNormGrad, in, out []DeviceTensor, add gpu.Ptr) (func() error, error) {
	M, C := normedRows(in)
	if o.Heads > 1 && cuda.FitsHeads(C) {
		geometry, lanes := cuda.RMSNormHeads(normEntry(o.PlusOne, "heads_backward"), M, C)
		return g.Launch(geometry, out[0].Ptr, in[3].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, add, int64(M), int32(C), int32(lanes))
	}
	return g.Launch(cuda.RMSNorm(normEntry(o.PlusOne, "backward"), M, C), out[0].Ptr, in[3].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, add, int32(C))
}
