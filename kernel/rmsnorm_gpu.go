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
		return g.Launch(geometry, out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, int64(M), int32(C), int32(lanes),
			float32(o.Eps))
	}
	return g.Launch(cuda.RMSNorm(normEntry(o.PlusOne, "forward"), M, C), out[0].Ptr, out[1].Ptr, in[0].Ptr, gpu.Ptr(0),
		in[1].Ptr, int32(C), float32(o.Eps))
}

// normEntry returns the kernel of a norm whose name ends so.
func normEntry(plusOne bool, end string) string {
	if plusOne {
		return "rmsnorm_plusone_" + end
	}
	return "rmsnorm_" + end
}

// normedRows returns the rows that are normed, or the heads of all rows, and the elements of one: the weight's.
func normedRows(in []DeviceTensor) (rows, size int) {
	size = in[1].Shape[0]
	return in[0].Elems() / max(size, 1), size
}

func (o RMSNormLowBits) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.RMSNorm(normEntry(o.PlusOne, "forward"), M, C), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[2].Ptr,
		in[1].Ptr, int32(C), float32(o.Eps))
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
	return g.Launch(cuda.RMSNorm(normEntry(o.PlusOne, end), M, C), y.Ptr, out[0].Ptr, to, rstd.Ptr, in[0].Ptr, from,
		in[1].Ptr, in[2].Ptr, int32(C), float32(o.Eps))
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
		return g.Launch(geometry, out[0].Ptr, in[3].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, add, int64(M), int32(C),
			int32(lanes))
	}
	return g.Launch(cuda.RMSNorm(normEntry(o.PlusOne, "backward"), M, C), out[0].Ptr, in[3].Ptr, in[0].Ptr, in[1].Ptr,
		in[2].Ptr, add, int32(C))
}

// GPU sums parts of the rows, or of the heads of all rows, and then the parts.
func (RMSNormWeightGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[1].Elems(), out[0].Elems()
	parts, err := g.Launch(cuda.ColumnSums("column_sums_norm", M, C), g.Scratch, in[2].Ptr, in[0].Ptr, in[1].Ptr,
		int64(M), int32(C), int32(cuda.ColumnParts(M)))
	if err != nil {
		return nil, err
	}
	return sumParts(g, out[0], M, parts)
}

// GPU is one kernel for whole heads of a size that it takes, else a norm and a rotation.
func (o RMSNormRoPE) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rows, D := normedRows(in)
	// with no other attribute
	plain := RMSNormRoPE{RMSNorm{Eps: o.Norm.Eps, Heads: o.Norm.Heads},
		RoPE{Heads: o.Norm.Heads, HeadDim: o.Rotate.HeadDim}}
	if o == plain && in[2].Shape[1] == D && cuda.FitsHeadsRoPE(D) {
		geometry, lanes := cuda.RMSNormHeads("rmsnorm_heads_rope_forward", rows, D)
		return g.Launch(geometry, out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[3].Ptr, in[2].Ptr,
			int64(rows), int32(D), int32(lanes), int32(o.Norm.Heads), float32(o.Norm.Eps))
	}
	norm, err := o.Norm.GPU(g, in[:2], out)
	if err != nil {
		return nil, err
	}
	rotate, err := o.Rotate.GPU(g, []DeviceTensor{out[0], in[2], in[3]}, out[:1])
	if err != nil {
		return nil, err
	}
	return inOrder(norm, rotate), nil
}

// GPU as RMSNormRoPE's.
func (o RMSNormRoPEGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rows, D := normedRows(in)
	plain := RMSNormRoPEGrad{RMSNormGrad{Heads: o.Norm.Heads},
		RoPE{Heads: o.Norm.Heads, HeadDim: o.Rotate.HeadDim, Inverse: true}}
	if o == plain && in[4].Shape[1] == D && cuda.FitsHeadsRoPE(D) {
		geometry, lanes := cuda.RMSNormHeads("rmsnorm_heads_rope_backward", rows, D)
		return g.Launch(geometry, out[0].Ptr, in[3].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[5].Ptr, in[4].Ptr,
			int64(rows), int32(D), int32(lanes), int32(o.Norm.Heads))
	}
	rotate, err := o.Rotate.GPU(g, in[3:], out)
	if err != nil {
		return nil, err
	}
	grad, err := o.Norm.GPU(g, []DeviceTensor{in[0], in[1], in[2], out[0]}, out)
	if err != nil {
		return nil, err
	}
	return inOrder(rotate, grad), nil
}
