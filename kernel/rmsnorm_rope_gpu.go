//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU is one kernel for whole heads of a size that it takes, else a norm and a rotation.
func (o RMSNormRoPE) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rows, D := normedRows(in)
	plain := RMSNormRoPE{RMSNorm{Eps: o.Norm.Eps, Heads: o.Norm.Heads}, RoPE{Heads: o.Norm.Heads, HeadDim: o.Rotate.HeadDim}} // with no other attribute
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
	plain := RMSNormRoPEGrad{RMSNormGrad{Heads: o.Norm.Heads}, RoPE{Heads: o.Norm.Heads, HeadDim: o.Rotate.HeadDim, Inverse: true}}
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
