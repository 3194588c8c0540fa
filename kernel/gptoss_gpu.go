//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (o AttentionSinks) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	last, M, H := len(in)-1, in[0].Shape[0], o.Attention.Heads
	attend, err := o.Attention.GPU(g, in[:last], out)
	if err != nil {
		return nil, err
	}
	place, err := g.share(o.Ranks)
	if err != nil {
		return nil, err
	}
	sinks := in[last].Ptr.Add(int64(place * H * in[last].DType.Size()))
	sink, err := g.Launch(cuda.AttentionSinks(M, H), out[0].Ptr, out[1].Ptr, sinks, int32(M), int32(H), int32(in[0].Shape[1]/H))
	return inOrder(attend, sink), err
}

func (o ExpertBias) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	S, N := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.ExpertBias(S, N, o.Experts), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(S), int32(N))
}

func (ClampedSwiGLU) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(out[0].Elems())
	return g.Launch(cuda.ClampedSwiGLU("swiglu_clamped_forward", n), out[0].Ptr, in[0].Ptr, n)
}

func (ClampedSwiGLUGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(in[1].Elems())
	return g.Launch(cuda.ClampedSwiGLU("swiglu_clamped_grad", n), out[0].Ptr, in[0].Ptr, in[1].Ptr, n)
}
