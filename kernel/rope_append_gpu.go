//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (o RoPEAppend) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	q, _ := o.parts()
	M, P, D, R, W := in[0].Shape[0], in[5].Shape[0], q.head(in[3].Type), in[3].Shape[1], in[2].Shape[1]
	return g.Launch(cuda.RopeAppend(M, o.Heads, o.KVHeads, D, R, W), out[0].Ptr, in[1].Ptr, in[2].Ptr, out[1].Ptr, out[2].Ptr, in[4].Ptr, in[3].Ptr, in[7].Ptr,
		int32(P), int32(o.Heads), int32(o.KVHeads), int32(D), int32(R), int32(W))
}
